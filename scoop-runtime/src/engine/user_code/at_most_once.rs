//! Finds a step that runs at most once, has begun, and did not complete. [`Scope::begin_once`](crate::Scope) records the
//! beginnings.
//!
//! `step_begin.sql` commits a row of `begun_step` under the epoch of the claim, before the code is called. Its key is the
//! run and the number of completed steps, so of two claims only the first calls the code. A later claim that finds the row
//! fails the run with `Interrupted`, whatever its definition has next: as long as no step has completed since, the begun one
//! did not. Only a run with a failed attempt is looked up, so other claims cost nothing.

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
