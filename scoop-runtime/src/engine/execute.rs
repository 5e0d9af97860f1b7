//! Executes one run step by step, until it has to wait.
//!
//! Each turn asks the protocol for the next move, calls the user code of that move ([`super::user_code`]), and persists
//! the conclusion ([`super::settle`]).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use scoop_core::{AttemptHistory, Conclusion, Continuation, Definition, Failure, Run, Wait};

use super::decisions::{decide, is_decision};
use super::execution::{Execution, Exit, InFlightGuard, at, next, reasons_to_give_up};
use super::handover::{IfRefused, hand_to_another};
use super::rollback_history::load_rollback_plan;
use super::settle::{StepFailed, settle};
use super::shared::Engine;
use super::slots::SlotLease;
use super::topology::recorded::recorded;
use super::topology::refresh::add_reply_type;
use super::user_code::at_most_once::interrupted;
use super::user_code::{call_and_conclude, cleanups_of, conclude_failed};
use super::wait_strategy::{decide_wait, failed_launches, wait_for_left};
use super::wakeups::Delivery;
use crate::engine::why::Why;
use crate::saga::private::Pin;
use crate::saga::registry::RunnableSaga;
use crate::store::join::recorders;
use crate::store::{ClaimedRun, FormerAttempts, HandOver, Release, StepTransaction};
use crate::telemetry::{self, RunSpan};

/// Executes a claimed run until it waits, ends, or has to be left to other workers.
pub(super) async fn drive(flight: InFlightGuard, claimed: ClaimedRun, lease: SlotLease) {
    let Some(saga) = flight.engine.sagas().find(&claimed.topic, &claimed.handler).cloned() else {
        unreachable!("only runs of registered sagas are claimed");
    };
    drive_as(flight, claimed, lease, saga).await;
}

/// [`drive`] by this saga.
pub(super) async fn drive_as(
    flight: InFlightGuard,
    claimed: ClaimedRun,
    lease: SlotLease,
    saga: Arc<RunnableSaga>,
) {
    let engine = flight.engine.clone();
    let ClaimedRun { key, payload, attempts, retries, tried_under, newest_failure, .. } = claimed;
    let ClaimedRun { flags, began_at, overdue, run, definition, signalled_by, wait, .. } = claimed;
    let reserved = claimed.reserved_for != 0;
    let run = Run { failure_text_bytes_max: engine.settings.limits.failure_text_bytes_max, ..run };
    let mut run = run;
    run.failed_children.splice(..0, failed_launches(wait.as_ref()));
    let (message, stored) = (OnceLock::new(), run.context.clone());
    let (tried, reasons) = (AttemptHistory::default(), vec![]);
    let is_joined =
        || run.last.is_none() && engine.joins.iter().any(|spec| spec.topic == saga.definition.topic);
    let links = || if is_joined() { recorders(&payload) } else { vec![] };
    let span = RunSpan::begin(at(&saga, key, &run), &run.context, links);
    let mut execution = Execution {
        key,
        saga,
        payload,
        message,
        attempts,
        retries,
        newest_failure,
        flags,
        began_at,
        overdue,
        run,
        definition,
        reserved,
        stored_context: stored,
        attempt_history: tried,
        give_up_reasons: reasons,
        interrupted: None,
        slot: Some(lease),
        commit_token: None,
        undecided: None,
        span,
        signalled_by,
        wait: wait.filter(Wait::is_undecided),
    };
    execution.span.continues_in(&mut execution.run.context);
    let mut exit = position(&engine, &mut execution, &tried_under).await.err();
    // A run that is giving up finishes that even during a shutdown: its cleanup must run.
    while exit.is_none() && !(execution.is_left(&engine) && execution.give_up_reasons.is_empty()) {
        exit = advance(&engine, &mut execution).await.err();
    }
    match exit {
        Some(exit) if !matches!(exit, Exit::Abandoned) => {
            record_exit(&engine, &execution, exit, flight).await
        }
        // Other workers continue it, or the end of a pause.
        _ => {
            execution.span.ends_as("released");
            release(&engine, Release::at_once(execution.key), flight).await;
            engine.notify_ready(&[execution.saga.definition.saga.to_string()]);
        }
    }
}

/// Reads the definitions under which the run completed its newest step, and under which steps were tried.
async fn position(engine: &Engine, execution: &mut Execution, tried_under: &[i32]) -> Result<(), Exit> {
    if let Some(exit) = pinned(engine, execution) {
        return Err(exit);
    }
    execution.run.recorded = recorded(engine, &execution.saga, execution.definition).await?;
    if execution.attempt() > 0 {
        execution.interrupted = interrupted(engine, execution).await?;
        let mut under = vec![];
        for definition in tried_under {
            under.push(recorded(engine, &execution.saga, Some(*definition)).await?);
        }
        execution.attempt_history = AttemptHistory::of(&execution.saga.definition, &execution.run, &under);
        if !execution.attempt_history.counts {
            (execution.attempts, execution.retries) = (0, 0);
        }
    }
    Ok(())
}

/// Records why execution stopped. The run stays in flight until then, so that reconciliation skips it. If its state is
/// in doubt, the guard is dropped first, so that reconciliation finds it.
async fn record_exit(engine: &Engine, execution: &Execution, exit: Exit, flight: InFlightGuard) {
    match exit {
        Exit::Settled | Exit::Abandoned => {}
        Exit::TakenOver => {
            // Or this worker wrote it, and the answer was lost.
            drop(flight);
            engine.mark_in_doubt();
            if !report_recorded(engine, execution).await {
                execution.span.ends_as("discarded");
                telemetry::discarded(execution.at(&execution.step()));
            }
        }
        Exit::InDoubt(why) => {
            drop(flight);
            engine.mark_in_doubt();
            if !report_recorded(engine, execution).await {
                execution.span.ends_as("unknown");
                let outcome = execution.undecided.as_ref().map_or("", |outcome| outcome.name());
                telemetry::outcome_unknown(execution.at(&execution.step()), outcome, &why);
            }
        }
        Exit::Infrastructure(why) => {
            let pause = engine.settings.backoff.pause(execution.attempts);
            retry(engine, execution, Retry { why, pause, is_infrastructure: true }, flight).await;
        }
        Exit::Retry { why, pause } => {
            retry(engine, execution, Retry { why, pause, is_infrastructure: false }, flight).await;
        }
        Exit::SignalRefused(why) => await_another_signal(engine, execution, &why, flight).await,
        Exit::Stuck(why) => refuse(engine, execution, &why, or_stuck(execution), flight).await,
        Exit::Pinned { definition, otherwise } => {
            let why = format!(
                "it began under definition {definition} of its saga, which is pinned: start a program with that"
            );
            refuse(engine, execution, &why.into(), (otherwise, Some(definition)), flight).await;
        }
        // The types would make another definition, to which no run is pinned.
        Exit::UnfitReply { why, .. } if execution.is_pinned() => {
            refuse(engine, execution, &why, or_stuck(execution), flight).await
        }
        Exit::UnfitReply { why, reply_type } => {
            match add_reply_type(engine, &execution.saga, &reply_type).await {
                Ok(()) => refuse(engine, execution, &why, or_stuck(execution), flight).await,
                Err(error) => {
                    let why = format!("the types of replies could not be recorded: {error}").into();
                    let pause = engine.settings.backoff.pause(execution.attempts);
                    retry(engine, execution, Retry { why, pause, is_infrastructure: true }, flight).await;
                }
            }
        }
    }
}

/// Hands the run over to a program that can continue it, or only to one with this definition.
async fn refuse(
    engine: &Engine,
    execution: &Execution,
    why: &Why,
    (otherwise, only): (IfRefused, Option<i32>),
    flight: InFlightGuard,
) {
    let (key, saga) = (execution.key, &execution.saga.definition.saga);
    match hand_to_another(engine, key, saga, &why.recorded, otherwise, only).await {
        HandOver::Stuck => {
            execution.span.is_stuck();
            telemetry::stuck(execution.at(&execution.step()), why.logged());
        }
        HandOver::HandedOver => execution.handed_over(&execution.step(), why),
        // That program has ended meanwhile: the next claim knows.
        HandOver::Void if otherwise == IfRefused::Retain => {
            release(engine, Release::at_once(key), flight).await;
            return;
        }
        HandOver::Void => {}
    }
    drop(flight);
}

/// Who may have a run that this program cannot continue: of a run that is pinned for always, its own definition only.
fn or_stuck(execution: &Execution) -> (IfRefused, Option<i32>) {
    let is_fixed = execution.is_pinned() && execution.saga.handler.pin() == Pin::Always;
    (IfRefused::Stuck, execution.definition.filter(|_| is_fixed))
}

/// The definition under which a run of a pinned saga began, if it stays with that: another one than that at hand.
fn pinned(engine: &Engine, execution: &Execution) -> Option<Exit> {
    let Definition { topic, saga, .. } = &execution.saga.definition;
    // Another definition has refused a run that is reserved.
    let is_pinned = execution.is_pinned() && !execution.reserved;
    let definition = execution.definition.filter(|it| is_pinned && *it != engine.topology.number_of(saga))?;
    let otherwise = match execution.saga.handler.pin() {
        // One that gives up needs no further step.
        Pin::Always if !execution.overdue => IfRefused::Stuck,
        _ if engine.topology.has_living(topic, saga, definition) => IfRefused::Retain,
        _ => return None,
    };
    Some(Exit::Pinned { definition, otherwise })
}

/// Has the run wait again for the signal that its step cannot read.
async fn await_another_signal(engine: &Engine, execution: &Execution, why: &Why, flight: InFlightGuard) {
    let refused = engine.store.refuse_signal(execution.key, &why.recorded).await;
    drop(flight);
    engine.reschedule_timer();
    match refused {
        Ok(Some(to)) => {
            execution.span.ends_as("signal_refused");
            telemetry::signal_refused(execution.at(&execution.step()), &to.name, &to.key, why.logged());
            // Another one may be kept.
            engine.wakeups.deliver(Delivery::To(to));
        }
        Ok(None) => {}
        Err(error) => {
            telemetry::release_failed(execution.key.root, execution.key.id, &error);
            engine.mark_in_doubt();
        }
    }
}

struct Retry {
    why: Why,
    pause: Duration,
    /// Whether the database or the connection failed, and not the step.
    is_infrastructure: bool,
}

/// Releases the run, to be retried.
async fn retry(engine: &Engine, execution: &Execution, retry: Retry, flight: InFlightGuard) {
    let Retry { why, pause, is_infrastructure } = retry;
    let pause = pause.as_secs_f64();
    let after = Release {
        granted: !is_infrastructure,
        definition: engine.topology.known_number_of(&execution.saga.definition.saga),
        former_attempts: match execution.attempt_history.counts {
            true => FormerAttempts::OfSameStep,
            false => FormerAttempts::OfOtherStep,
        },
        ..Release::after(execution.key, pause, why.recorded.clone())
    };
    if release(engine, after, flight).await {
        execution.span.ends_as("retried");
        let report = if execution.attempt() == 0 { telemetry::retried } else { telemetry::retried_again };
        report(execution.at(&execution.step()), why.logged(), pause, is_infrastructure);
    }
}

/// Returns whether the claim of the run held.
async fn release(engine: &Engine, release: Release, flight: InFlightGuard) -> bool {
    let key = release.key;
    let released = engine.store.release(&[release]).await;
    drop(flight);
    engine.reschedule_timer();
    released.map(|released| released > 0).unwrap_or_else(|error| {
        telemetry::release_failed(key.root, key.id, &error);
        engine.mark_in_doubt();
        false
    })
}

/// Makes the next move, and concludes it.
async fn advance(engine: &Engine, execution: &mut Execution) -> Result<(), Exit> {
    if let Some(wait) = execution.wait.take() {
        return Err(decide_wait(engine, execution, wait).await?);
    }
    if let Some(message) = load_rollback_plan(engine, &execution.saga, &mut execution.run).await? {
        // A requested rollback is claimed with the message of the first execution.
        execution.payload = message;
    }
    // A rollback that misses its deadline gives up instead.
    if !execution.overdue
        && let Some(exit) = wait_for_left(engine, execution).await?
    {
        return Err(exit);
    }
    if std::mem::take(&mut execution.overdue) {
        execution.give_up_reasons = reasons_to_give_up(engine, execution).await?;
    }
    let concluded = match std::mem::take(&mut execution.give_up_reasons) {
        reasons if reasons.is_empty() && execution.interrupted.is_some() => {
            Some(conclude_interrupted(engine, execution).await?)
        }
        reasons if reasons.is_empty() => {
            // From here on the next move counts as tried, however the call ends.
            execution.attempt_history.next = true;
            match next(execution)? {
                Continuation::Record(record) => Some((record.conclude(), None)),
                Continuation::Call(call) if is_decision(execution, &call) => None,
                Continuation::Call(call) => Some(call_and_conclude(engine, execution, call).await?),
            }
        }
        reasons => Some(conclude_give_up(engine, execution, reasons).await?),
    };
    let mut persisted = match concluded {
        Some((conclusion, opened)) => settle(engine, execution, conclusion, opened).await?,
        None => Box::pin(decide(engine, execution)).await?,
    };
    while let Err(StepFailed { context, failure }) = persisted {
        let (conclusion, opened) = match next(execution)? {
            Continuation::Call(call) => conclude_failed(engine, execution, call, context, failure).await?,
            Continuation::Record(record) => (record.conclude(), None),
        };
        persisted = settle(engine, execution, conclusion, opened).await?;
    }
    Ok(())
}

/// Concludes the failure of a run that has begun a step which runs at most once.
async fn conclude_interrupted(
    engine: &Engine,
    execution: &mut Execution,
) -> Result<(Conclusion, Option<StepTransaction>), Exit> {
    let failure = execution.interrupted.take().expect("it was interrupted");
    match next(execution)? {
        Continuation::Call(call) => {
            conclude_failed(engine, execution, call, execution.run.context.clone(), failure).await
        }
        Continuation::Record(record) => Ok((record.fail(failure), None)),
    }
}

/// Concludes giving up. Cleans up after steps with failed attempts.
async fn conclude_give_up(
    engine: &Engine,
    execution: &mut Execution,
    mut reasons: Vec<Failure>,
) -> Result<(Conclusion, Option<StepTransaction>), Exit> {
    // A step that runs at most once may have had its effects: the compensations ask for that.
    reasons.extend(interrupted(engine, execution).await?);
    if let Continuation::Call(call) = next(execution)? {
        let failure = Failure::gave_up(&execution.run.source, reasons.clone());
        if !cleanups_of(execution, call.action()).is_empty() {
            return conclude_failed(engine, execution, call, execution.run.context.clone(), failure).await;
        }
    }
    execution.run.give_up = reasons;
    match next(execution)? {
        Continuation::Record(record) => Ok((record.conclude(), None)),
        Continuation::Call(call) => call_and_conclude(engine, execution, call).await,
    }
}

/// Reports the decision if it is recorded although the answer was lost. Returns whether it is.
async fn report_recorded(engine: &Engine, execution: &Execution) -> bool {
    let Some(outcome) = &execution.undecided else {
        return false;
    };
    let recorded = engine.store.recorded(execution.key, &engine.identifier, outcome.kind()).await;
    // If this fails, too, that is unknown.
    let recorded = recorded.unwrap_or(false);
    if recorded {
        outcome.report(execution);
    }
    recorded
}
