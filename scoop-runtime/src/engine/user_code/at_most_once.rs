//! Finds a step that runs at most once, has begun, and did not complete. [`Scope::begin_once`](crate::Scope) records the
//! beginnings.

use scoop_core::Failure;

use crate::engine::execution::{Execution, Exit, unread};
use crate::engine::shared::Engine;
use crate::saga::scope::once;

/// The failure of a run that has begun a step which runs at most once, and did not complete it. The run fails so
/// whatever the definition at hand has next: that step, also under another name, another one before it, or none.
pub(in crate::engine) async fn interrupted(
    engine: &Engine,
    execution: &Execution,
) -> Result<Option<Failure>, Exit> {
    let run = &execution.run;
    if run.is_backward() {
        return Ok(None);
    }
    match engine.store.find_begun_step(execution.key, once::instance(run)).await {
        Ok(begun) => Ok(begun.map(|begun| once::interrupted(&execution.saga.definition, run, &begun))),
        Err(error) => Err(unread("which step has begun could not be read", &error)),
    }
}
