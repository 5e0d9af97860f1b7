//! Writes a conclusion in the transaction of its step, and commits it. If the answer to the COMMIT is lost, the run
//! ends in doubt, and [`crate::engine::reconcile`] finds out what was committed.

use crate::engine::execution::Exit;
use crate::engine::shared::Engine;
use crate::error::{
    is_cancelled, is_of_open_copy, is_out_of_step, is_rolled_back, is_stale, is_transient_in_step,
    is_transient_within_step,
};
use crate::model::run::RowState;
use crate::store::{MARKED, SettleResult, Settlement, StepTransaction, Unhandled, roll_back};

/// Why the transaction of a step was not committed.
pub(super) enum CommitError {
    Exit(Exit),
    /// The step has caused it.
    Failed(String),
    /// A message of the step requires a handler, and there is none.
    Unhandled(Unhandled),
}

pub(super) async fn settle_and_commit(
    engine: &Engine,
    settlement: Settlement,
    mut opened: StepTransaction,
) -> Result<SettleResult, CommitError> {
    if opened.is_nested() {
        roll_back(Some(opened)).await;
        return Err(CommitError::Failed(NESTED.into()));
    }
    let settled =
        engine.store.settle_within(&mut opened.transaction, &engine.identifier, &settlement, MARKED).await;
    let settled = match settled {
        Ok(Some(settled)) => Ok(settled),
        Ok(None) => Err(match opened.has_claim_mark().await {
            Ok(true) => CommitError::Exit(Exit::TakenOver),
            Ok(false) => CommitError::Failed(SELF_ENDED.into()),
            Err(error) => classify_write_error(error, &mut opened),
        }),
        Err(error) => Err(classify_write_error(error, &mut opened)),
    };
    let mut settled = match settled {
        Ok(settled) => settled,
        Err(error) => {
            roll_back(Some(opened)).await;
            return Err(error);
        }
    };
    let started = std::mem::take(&mut opened.ready_handlers);
    let Some(connections) = &engine.step_transactions else {
        return Err(CommitError::Failed("there is no database in which a step could have written".into()));
    };
    let goes_on = (settled.state == RowState::Running).then_some(settlement.id().0);
    match connections.commit(opened, goes_on).await {
        Ok(()) => {
            settled.ready_handlers.extend(started);
            Ok(settled)
        }
        Err(error) if is_rolled_back(&error) => {
            Err(CommitError::Exit(Exit::Infrastructure(error.to_string().into())))
        }
        // What was cancelled may have been the next transaction, which begins in the same message.
        Err(error) if is_transient_in_step(&error) || is_cancelled(&error) => {
            Err(CommitError::Exit(Exit::InDoubt(error.to_string())))
        }
        Err(error) => {
            let why = format!("the transaction of the step could not be committed: {error}");
            Err(CommitError::Failed(why))
        }
    }
}

const SELF_ENDED: &str = "the step ended its transaction itself, or reset the settings of it: the mark of the engine \
    in it is gone. Statements that do that: COMMIT, END, ROLLBACK, ABORT, PREPARE TRANSACTION, RESET ALL, RESET \
    scoop_run.claim. Use nested transactions and SET LOCAL, and leave the outer transaction to the engine";

const NESTED: &str = "the step left a nested transaction open, which it neither committed nor dropped \
    (`std::mem::forget`?), so that its effects belong to no transaction that could be committed";

const WENT_ON: &str = "a statement of the step failed, and the step went on as if it had not; pass its \
    error on, or guard it with a nested transaction";

const IN_FAILED_TRANSACTION: &str = "25P02";

const COPY_OPEN: &str = "the step left a COPY open, so that the server takes what follows for a part of it; \
    call `finish` or `abort` of a `PgCopyIn`, and read the stream of a COPY TO to its end";

fn classify_write_error(error: sqlx::Error, opened: &mut StepTransaction) -> CommitError {
    if is_out_of_step(&error) {
        opened.abandon();
    }
    if is_of_open_copy(&error) {
        return CommitError::Failed(COPY_OPEN.into());
    }
    if error.as_database_error().is_some_and(is_stale) {
        // The step has deallocated it.
        opened.close_in_the_end();
        if !opened.is_fresh {
            return CommitError::Exit(Exit::Infrastructure(error.to_string().into()));
        }
    }
    if let Some(unhandled) = Unhandled::find_in(&error) {
        return CommitError::Unhandled(unhandled.clone());
    }
    if is_transient_within_step(&error) {
        // The server answered, so the result is known.
        let answered = error.as_database_error().is_some();
        let why = error.to_string();
        return CommitError::Exit(if answered {
            Exit::Infrastructure(why.into())
        } else {
            Exit::InDoubt(why)
        });
    }
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    match &*code {
        IN_FAILED_TRANSACTION => CommitError::Failed(WENT_ON.into()),
        _ => CommitError::Failed(format!("what follows from the step could not be written: {error}")),
    }
}
