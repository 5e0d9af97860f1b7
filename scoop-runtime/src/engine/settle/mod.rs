//! Persists a conclusion: in the transaction of the step if it opened one ([`in_step`]), otherwise batched with other
//! runs ([`batched`]).
//!
//! The time of an event is that of the server's clock, but at least a microsecond after the last event of its run
//! (`last_event_at`). Children and woken parents inherit that time, so times rise strictly within a lineage even if the
//! clock does not.

pub(super) mod after_commit;
pub(super) mod batched;
mod in_step;
pub(super) mod queue;

use scoop_core::{
    AttemptHistory, Conclusion, Context, Continuation, EventKind, Failure, Fate, Frame, Path, Run,
};

use self::in_step::{CommitError, settle_and_commit};
use self::queue::{Answer, SettleError};
use super::execution::{Execution, Exit, reasons_to_give_up};
use super::rollback_history::load_rollback_plan;
use super::shared::Engine;
use super::slots::SlotLease;
use super::wakeups::Delivery;
use crate::completion::RunEnd;
use crate::engine::settle::after_commit::AfterCommit;
use crate::model::run::RowState;
use crate::saga::registry::RunnableSaga;
use crate::store::{ParentRef, SettleResult, Settlement, StepTransaction, Unhandled, roll_back};
use crate::telemetry::{self, metrics};
use crate::unhandled::UnhandledWarnings;

const COALESCED_EVENTS_MAX: usize = 100;

/// The failure of a step whose code succeeded, and the context that the code left behind.
pub(super) struct StepFailed {
    pub(super) context: Context,
    pub(super) failure: Failure,
}

pub(super) type SettleOutcome = Result<Result<(), StepFailed>, Exit>;

/// Persists the conclusion: in the transaction of the step, if it opened one. A step fails after all if what follows
/// from it cannot be written.
pub(super) async fn settle(
    engine: &Engine,
    execution: &mut Execution,
    mut conclusion: Conclusion,
    opened: Option<StepTransaction>,
) -> SettleOutcome {
    if execution.attempt() > 0 {
        record_attempts(execution, &mut conclusion);
    }
    if let Some(rehearsal) = &engine.settings.rehearsal {
        execution.commit_token =
            rehearsal.before_commit(&execution.saga.definition.saga, execution.key.id, &conclusion);
        if execution.commit_token.is_none() {
            roll_back(opened).await;
            return Err(Exit::InDoubt("the process crashes before the commit, as it was to".into()));
        }
    }
    match opened {
        None => settle_batched(engine, execution, conclusion).await,
        Some(opened) => settle_in_step(engine, execution, conclusion, opened).await,
    }
}

/// Records the number of failed attempts, and the newest failure, with the event of a step that succeeded at last.
fn record_attempts(execution: &Execution, conclusion: &mut Conclusion) {
    if let Some(completed) = conclusion.events.iter_mut().find(|event| event.kind == EventKind::Suspended) {
        let text = match (execution.attempt(), &execution.newest_failure) {
            (1, None) => "1 attempt failed before".to_owned(),
            (1, Some(reason)) => format!("1 attempt failed before: {reason}"),
            // A program that shut down between them has left no reason.
            (count, None) => format!("{count} attempts failed before"),
            (count, Some(reason)) => format!("{count} attempts failed before, the newest one so: {reason}"),
        };
        let failure = Failure::new("FailedAttempts", text, &execution.run.source);
        completed.exception = Some(failure.bounded(execution.run.failure_text_bytes_max));
    }
}

/// Coalesces moves without user code, so that they need no commit of their own: the COMMITTED after a last step, and
/// parts of a rollback that undo nothing.
async fn coalesce(engine: &Engine, saga: &RunnableSaga, mut conclusion: Conclusion) -> Conclusion {
    while let Some(run) = may_coalesce(&mut conclusion) {
        // A record that cannot be read now is read in the next turn.
        if load_rollback_plan(engine, saga, run).await.is_err() {
            break;
        }
        let Some(following) = following_record(saga, run) else { break };
        conclusion = conclusion.followed_by(following);
    }
    conclusion
}

/// Like `coalesce`, without reading more of the record.
pub(super) fn coalesce_recorded(saga: &RunnableSaga, mut conclusion: Conclusion) -> Conclusion {
    while let Some(following) = may_coalesce(&mut conclusion).and_then(|run| following_record(saga, run)) {
        conclusion = conclusion.followed_by(following);
    }
    conclusion
}

/// The run after this conclusion, if it continues at once and one more event may be coalesced.
fn may_coalesce(conclusion: &mut Conclusion) -> Option<&mut Run> {
    let full = conclusion.waits() || conclusion.events.len() >= COALESCED_EVENTS_MAX;
    match &mut conclusion.fate {
        Fate::GoesOn(run) if !full => Some(run),
        _ => None,
    }
}

/// The conclusion of the next move, if that is one without user code.
fn following_record(saga: &RunnableSaga, run: &Run) -> Option<Conclusion> {
    if !run.left().is_empty() {
        // What it has left under way ends first.
        return None;
    }
    match Continuation::of(&saga.definition, run) {
        Ok(Continuation::Record(record)) => Some(record.conclude()),
        Ok(Continuation::Call(_)) | Err(_) => None,
    }
}

fn settlement(engine: &Engine, execution: &Execution, conclusion: Conclusion) -> Settlement {
    let settlement = Settlement::new(
        execution.key,
        &execution.run,
        execution.flags,
        &execution.stored_context,
        conclusion,
    );
    settlement.under(engine.topology.number_of(&execution.saga.definition.saga), execution.definition)
}

async fn settle_batched(engine: &Engine, execution: &mut Execution, conclusion: Conclusion) -> SettleOutcome {
    let conclusion = coalesce(engine, &execution.saga, conclusion).await;
    let after = AfterCommit::of(&execution.run, &conclusion);
    let settlement = settlement(engine, execution, conclusion);
    let (after, sets_a_time) = (after.with(&settlement), settlement.has_timer());
    let answer = engine.settler.settle(settlement).await;
    settled(engine, execution, answer, after, sets_a_time).await
}

/// Continues after a settlement outside the transaction of the step.
pub(super) async fn settled(
    engine: &Engine,
    execution: &mut Execution,
    answer: Answer,
    after: AfterCommit,
    sets_a_time: bool,
) -> SettleOutcome {
    match answer {
        Ok(settled) => apply(engine, execution, settled, after, sets_a_time).map(Ok),
        Err(SettleError::TakenOver) => on_refused(engine, execution, after, false).await,
        Err(SettleError::Refused(error)) => {
            Err(Exit::Stuck(format!("the result of the step cannot be written: {error}").into()))
        }
        Err(SettleError::Stopped) => {
            execution.undecided = after.outcome;
            Err(Exit::InDoubt("the engine stopped".into()))
        }
        Err(SettleError::Unhandled(unhandled)) => {
            Ok(Err(without_handler(engine, execution, after.context, unhandled).await))
        }
    }
}

async fn settle_in_step(
    engine: &Engine,
    execution: &mut Execution,
    conclusion: Conclusion,
    opened: StepTransaction,
) -> SettleOutcome {
    let conclusion = coalesce(engine, &execution.saga, conclusion).await;
    let after = AfterCommit::of(&execution.run, &conclusion);
    // A failure is recorded even if the writes of the cleanup are not.
    let failing = (after.rolling_back && !execution.run.is_backward()).then(|| conclusion.clone());
    let settlement = settlement(engine, execution, conclusion);
    let (after, sets_a_time) = (after.with(&settlement), settlement.has_timer());
    match settle_and_commit(engine, settlement, opened).await {
        Ok(settled) => apply(engine, execution, settled, after, sets_a_time).map(Ok),
        Err(CommitError::Exit(Exit::TakenOver)) => on_refused(engine, execution, after, true).await,
        Err(CommitError::Exit(exit)) => {
            execution.undecided = after.outcome;
            Err(exit)
        }
        Err(CommitError::Unhandled(unhandled)) => {
            Ok(Err(without_handler(engine, execution, after.context, unhandled).await))
        }
        Err(CommitError::Failed(why)) => match failing {
            Some(conclusion) => {
                telemetry::cleanup_lost(execution.at(&execution.step()), &why);
                settle_batched(engine, execution, conclusion).await
            }
            None => {
                let failure = Failure::new("TransactionError", why, &execution.run.source);
                Ok(Err(StepFailed { context: after.context, failure }))
            }
        },
    }
}

/// The conclusion was not written, since another worker has the run, or since the run has to give up.
async fn on_refused(
    engine: &Engine,
    execution: &mut Execution,
    after: AfterCommit,
    in_transaction: bool,
) -> SettleOutcome {
    let reasons = reasons_to_give_up(engine, execution).await?;
    if reasons.is_empty() {
        // The writes of the step are rolled back, so if the run is still held, the step has caused that.
        if in_transaction && engine.store.is_claimed(execution.key).await.unwrap_or(false) {
            let failure = Failure::new("TransactionError", OWN_RUN, &execution.run.source);
            return Ok(Err(StepFailed { context: after.context, failure }));
        }
        execution.undecided = after.outcome;
        return Err(Exit::TakenOver);
    }
    // Changes of the context by the step outlive it.
    execution.run.context = after.context;
    execution.give_up_reasons = reasons;
    Ok(Ok(()))
}

const OWN_RUN: &str = "the step changed or deleted its own row in the table `run` of the engine";

/// The failure of a step that launched a message which requires a handler, and there is none.
async fn without_handler(
    engine: &Engine,
    execution: &Execution,
    context: Context,
    unhandled: Unhandled,
) -> StepFailed {
    let text = unhandled.explained(&engine.store).await.to_string();
    let mut failure = Failure::new("NoHandler", text, &execution.run.source);
    failure.stack_trace.extend(unhandled.at.map(Frame::from));
    StepFailed { context, failure }
}

/// Applies a committed settlement: notifies parents and clients, and the run continues if it can.
fn apply(
    engine: &Engine,
    execution: &mut Execution,
    settled: SettleResult,
    after: AfterCommit,
    sets_a_time: bool,
) -> Result<(), Exit> {
    if let (Some(rehearsal), Some(commit)) = (&engine.settings.rehearsal, execution.commit_token.take())
        && rehearsal.after_commit(commit)
    {
        return Err(Exit::InDoubt("the process crashes after the commit, as it was to".into()));
    }
    let ending = after.outcome.as_ref().map(|outcome| outcome.name());
    if let Some(outcome) = after.outcome {
        outcome.report(execution);
    }
    if execution.saga.handler.decisions().is_some() {
        UnhandledWarnings::decided(&after.topics);
    } else if !after.topics.is_empty() {
        engine.unhandled.launched(after.topics.iter().map(String::as_str), &settled.ready_handlers);
    }
    engine.notify_ready(&settled.ready_handlers);
    if sets_a_time {
        engine.reschedule_timer();
    }
    for signal in after.signals {
        engine.unhandled.signalled(&signal.name);
        engine.wakeups.deliver(Delivery::To(signal));
    }
    let committed = after.run.is_none() && !after.rolling_back;
    if settled.state.has_ended() {
        let outcome = ending.unwrap_or(if committed { "committed" } else { "rolled_back" });
        if committed {
            execution.span.ends_as("committed");
        }
        let is_rolled_back = matches!(execution.run.path, Path::Backward { rollback_requested: true, .. });
        // The clocks of the server and of a program that has begun it by itself may differ.
        let duration = (settled.last_event_at - execution.began_at).max(time::Duration::ZERO);
        if !is_rolled_back {
            metrics::run_seconds(&execution.saga.definition.saga, outcome).record(duration.as_seconds_f64());
        }
        match execution.run.lineage.parent() {
            Some(parent) if execution.flags.has_parent => {
                let (root, id) = (parent.root_id(), parent.id());
                let slot = execution.slot.take().and_then(SlotLease::into_shared_slot);
                engine.wakeups.child_ended(ParentRef { root, id, at: settled.last_event_at }, slot);
            }
            _ => {
                // A run that no other waits for any more says nothing about the message of the hierarchy.
                let is_first = execution.run.lineage.ids().len() == 2;
                // One whose rollback failed ends when an operator has settled that.
                if is_first && outcome != "rollback_failed" {
                    metrics::root_runs(outcome, 1);
                }
                let end = if committed && is_first { RunEnd::Committed } else { RunEnd::Unknown };
                engine.completions.notify(execution.key.root, end);
            }
        }
    }
    match after.run {
        Some(run) if settled.state == RowState::Running => {
            execution.flags.in_rollback |= run.is_backward();
            execution.stored_context = run.context.clone();
            (execution.run, execution.definition) = (run, after.definition);
            execution.key.epoch += 1;
            execution.slot.iter_mut().for_each(SlotLease::clear_suspicion);
            execution.attempts = 0;
            execution.retries = 0;
            execution.newest_failure = None;
            execution.attempt_history = AttemptHistory::default();
            execution.overdue = settled.overdue;
            execution.wait = after.wait;
            if let Some(payload) = after.as_new {
                execution.begin_execution(payload, settled.last_event_at);
            }
            Ok(())
        }
        _ => {
            if !settled.state.has_ended() {
                execution.span.ends_as("waiting");
            }
            let newest = execution.run.last.as_ref().map_or("", |last| &last.step);
            telemetry::left(execution.at(newest), settled.state.has_ended());
            Err(Exit::Settled)
        }
    }
}
