//! Steps that run at most once: their beginning is recorded before their code runs.

use scoop_core::{Action, Call, Delivery, Failure, Interrupted};

use crate::engine::execution::{Execution, Exit};
use crate::engine::shared::Engine;
use crate::store::StepBeginning;
use crate::util::format::system_time;

/// Records that a step begins if it runs at most once. Returns its failure if it began under an earlier claim.
pub(super) async fn begin(
    engine: &Engine,
    execution: &Execution,
    call: &Call<'_>,
) -> Result<Option<Failure>, Exit> {
    let Action::Invoke { step, .. } = call.action() else { return Ok(None) };
    let definition = &execution.saga.definition;
    let step = &definition.steps[*step];
    if step.delivery == Delivery::AtLeastOnce {
        return Ok(None);
    }
    let names: Vec<_> = step.all_names().map(str::to_owned).collect();
    let instance = i32::try_from(execution.run.suspensions).unwrap_or(i32::MAX);
    match engine.store.begin_step(execution.key, instance, &names).await {
        Ok(Some(StepBeginning::Now)) => Ok(None),
        Ok(Some(StepBeginning::Before(began_at))) => {
            let interrupted = Interrupted::new(&*definition.saga, &*step.name, system_time(began_at));
            Ok(Some(interrupted.to_failure(&execution.run.source)))
        }
        Ok(None) => Err(Exit::TakenOver),
        Err(error) => {
            let why = format!("the beginning of step `{}` could not be recorded: {error}", step.name);
            Err(Exit::Infrastructure(why.into()))
        }
    }
}
