//! Reads the definitions under which runs completed their newest steps.

use std::sync::Arc;

use scoop_core::RecordedStep;

use crate::engine::execution::Exit;
use crate::engine::shared::Engine;
use crate::saga::registry::RunnableSaga;
use crate::util::sync::lock;

/// The steps of the definition under which the newest step of a run completed, unless that is the one at hand.
pub(in crate::engine) async fn recorded(
    engine: &Engine,
    saga: &RunnableSaga,
    definition: Option<i32>,
) -> Result<Option<Arc<[RecordedStep]>>, Exit> {
    let Some(definition) =
        definition.filter(|definition| *definition != engine.topology.number_of(&saga.definition.saga))
    else {
        return Ok(None);
    };
    if let Some(steps) = lock(&engine.topology.recorded).get(&definition) {
        return Ok(Some(steps.clone()));
    }
    let name = &saga.definition.saga;
    let steps = engine.store.definition_steps(definition, name).await.map_err(|error| {
        Exit::Infrastructure(
            format!("definition {definition} of saga `{name}` could not be read: {error}").into(),
        )
    })?;
    let steps: Arc<[RecordedStep]> = steps
        .ok_or_else(|| {
            Exit::Stuck(format!("there is no record of definition {definition} of saga `{name}`").into())
        })?
        .into();
    lock(&engine.topology.recorded).insert(definition, steps.clone());
    Ok(Some(steps))
}
