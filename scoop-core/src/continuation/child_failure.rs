//! The move after children of a run failed: a call of the child failure handler of the step that launched them, or the
//! failure of that step.

use super::{Action, Call, Continuation, Position, Record, RecordKind, Rollback, Stuck, removed_from};
use crate::changed_definition::known;
use crate::{Definition, Failure, RecordedStep, Run, Suspension};

/// The move after children failed which a step of the forward path launched.
pub(super) fn of_step<'a>(
    definition: &'a Definition,
    run: &'a Run,
    last: &Suspension,
    failure: Failure,
) -> Result<Continuation<'a>, Stuck> {
    let recorded = run.recorded.iter().flat_map(|steps| &**steps).find(|step| step.is_named(&last.step));
    let step = child_failure_handler(definition, &last.step, recorded)?;
    let handled = last.handler_iteration.map_or(0, |iteration| iteration + 1);
    let at = Position::new(definition, run, &last.step, Some(handled));
    Ok(on_child_failure(at, step, last.iteration, handled, failure))
}

/// The part of a rollback whose children failed, and how often such a failure was handled before.
#[derive(Clone, Copy)]
pub(super) struct RollbackPosition {
    pub(super) part: usize,
    pub(super) handled: u32,
}

/// The move after children failed which a part of the rollback launched or requested to roll back.
pub(super) fn of_rollback<'a>(
    definition: &'a Definition,
    run: &'a Run,
    Rollback { names, plan, .. }: Rollback<'_>,
    RollbackPosition { part, handled }: RollbackPosition,
    failure: Failure,
) -> Result<Continuation<'a>, Stuck> {
    let Some(part) = plan.parts().get(part) else {
        let at = Position::new(definition, run, names.sentinel(definition), Some(handled));
        return Ok(Continuation::Record(Record { at, kind: RecordKind::Fail(failure) }));
    };
    let completed = plan.instance(part);
    let step = child_failure_handler(definition, &completed.step, plan.recorded(completed))?;
    let at = Position::new(definition, run, &part.name, Some(handled));
    Ok(on_child_failure(at, step, plan.iteration(part), handled, failure))
}

/// A call of this step's child failure handler. Without a handler the failure becomes the step's own.
fn on_child_failure(
    at: Position<'_>,
    step: Option<usize>,
    iteration: u32,
    handler_iteration: u32,
    failure: Failure,
) -> Continuation<'_> {
    let Some(step) = step else {
        return Continuation::Record(Record { at, kind: RecordKind::Fail(failure) });
    };
    let action = Action::HandleChildFailure { step, iteration, handler_iteration, failure };
    Continuation::Call(Call { at, action })
}

/// The step whose handler receives the failure of its children; `None` without such a handler.
fn child_failure_handler(
    definition: &Definition,
    step: &str,
    recorded: Option<&RecordedStep>,
) -> Result<Option<usize>, Stuck> {
    match (known(definition, step), recorded) {
        (Err(unknown), Some(removed)) => match removed_from(definition, removed)?.handles_child_failure {
            true => Err(unknown),
            false => Ok(None),
        },
        (step, _) => step.map(|step| Some(step).filter(|step| definition.steps[*step].handles_child_failure)),
    }
}
