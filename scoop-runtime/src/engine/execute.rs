//! Executes one run step by step, until it has to wait.
//!
//! Each turn asks the protocol for the next move, calls the user code of that move ([`super::user_code`]), and persists
//! the conclusion ([`super::settle`]).

use std::sync::OnceLock;
use std::time::Duration;

use scoop_core::{Conclusion, Continuation, Failure, Run, Tried};

use super::definitions::recorded::{by_index, recorded};
use super::definitions::refresh::add_reply_type;
use super::execution::{Halt, InFlight, Job, Why, next, reasons_to_give_up};
use super::refusal::hand_to_another;
use super::rollback_history::recall;
use super::settle::{StepFailed, settle};
use super::shared::Engine;
use super::slots::SlotLease;
use super::user_code::{call_and_conclude, cleanups_of, conclude_failed};
use crate::bug::{Bug, made};
use crate::store::{Claimed, Release, SetAside, StepTransaction};
use crate::telemetry;

/// Executes a claimed run until it waits, ends, or has to be left to other workers.
pub(super) async fn drive(flight: InFlight, claimed: Claimed, seat: SlotLease) {
    let engine = flight.engine.clone();
    let Some(saga) = engine.sagas().find(&claimed.topic, &claimed.handler).cloned() else {
        unreachable!("only runs of registered sagas are claimed");
    };
    let Claimed { key, payload, attempts, retries, tried_under, .. } = claimed;
    let Claimed { surroundings, overdue, run, definition, .. } = claimed;
    let reserved = claimed.reserved_for != 0;
    let run = Run { failure_text_bytes_max: engine.settings.failure_text_bytes_max, ..run };
    let (message, stored) = (OnceLock::new(), run.context.clone());
    let (tried, reasons) = (Tried::default(), vec![]);
    let mut job = Job {
        key,
        saga,
        payload,
        message,
        attempts,
        retries,
        surroundings,
        overdue,
        run,
        definition,
        reserved,
        stored,
        tried,
        reasons,
        seat: Some(seat),
        rehearsed: None,
        undecided: None,
    };
    let mut halt = match position(&engine, &mut job, &tried_under).await {
        Ok(()) => {
            if made(Bug::ByIndex) && !job.run.is_backward() {
                by_index(&job.saga, &mut job.run);
            }
            if made(Bug::IgnoreRefusals) {
                job.run.recorded = None;
            }
            None
        }
        Err(halt) => Some(halt),
    };
    // A run that is giving up finishes that even during a shutdown: its cleanup must run.
    while halt.is_none() && !(job.is_left(&engine) && job.reasons.is_empty()) {
        halt = advance(&engine, &mut job).await.err();
    }
    match halt {
        Some(halt) if !matches!(halt, Halt::Abandoned) => halted(&engine, &job, halt, flight).await,
        // Other workers continue it.
        _ => {
            release(&engine, Release::at_once(job.key), flight).await;
            engine.announce(&[job.saga.definition.saga.to_string()]);
        }
    }
}

/// Reads the definitions under which the run completed its newest step, and under which steps were tried.
async fn position(engine: &Engine, job: &mut Job, tried_under: &[i32]) -> Result<(), Halt> {
    job.run.recorded = recorded(engine, &job.saga, job.definition).await?;
    if job.attempt() > 0 {
        let mut under = vec![];
        for definition in tried_under {
            under.push(recorded(engine, &job.saga, Some(*definition)).await?);
        }
        job.tried = Tried::of(&job.saga.definition, &job.run, &under);
        if !job.tried.counts {
            (job.attempts, job.retries) = (0, 0);
        }
    }
    Ok(())
}

/// Records why execution stopped. The run stays in flight until then, so that reconciliation skips it. If its state is
/// in doubt, the guard is dropped first, so that reconciliation finds it.
async fn halted(engine: &Engine, job: &Job, halt: Halt, flight: InFlight) {
    match halt {
        Halt::Settled | Halt::Abandoned => {}
        Halt::TakenOver => {
            // Or this worker wrote it, and the answer was lost.
            drop(flight);
            engine.doubt();
            if !report_recorded(engine, job).await {
                telemetry::discarded(job.at(&job.step()));
            }
        }
        Halt::InDoubt(why) => {
            drop(flight);
            engine.doubt();
            if !report_recorded(engine, job).await {
                let outcome = job.undecided.as_ref().map_or("", |outcome| outcome.name());
                telemetry::outcome_unknown(job.at(&job.step()), outcome, &why);
            }
        }
        Halt::Infrastructure(why) => {
            let pause = engine.settings.backoff.pause(job.attempts);
            retry(engine, job, (why, pause, true), flight).await;
        }
        Halt::Retry { why, pause } => retry(engine, job, (why, pause, false), flight).await,
        Halt::FailedAgain(failed) => {
            if set_aside(engine, job, flight, engine.store.hold(job.key, &failed)).await {
                telemetry::rollback_failed(job.at(&failed.part), &failed.failure, true);
            }
        }
        Halt::Stuck(why) => refuse(engine, job, &why, flight).await,
        Halt::UnfitReply { why, reply_type } => match add_reply_type(engine, &job.saga, &reply_type).await {
            Ok(()) => refuse(engine, job, &why, flight).await,
            Err(error) => {
                let why = format!("the types of replies could not be recorded: {error}").into();
                retry(engine, job, (why, engine.settings.backoff.pause(job.attempts), true), flight).await;
            }
        },
    }
}

/// Hands the run over to a program that can continue it.
async fn refuse(engine: &Engine, job: &Job, why: &Why, flight: InFlight) {
    match hand_to_another(engine, job.key, (&job.saga.definition.saga, true), &why.recorded).await {
        SetAside::Stuck => telemetry::stuck(job.at(&job.step()), why.logged()),
        SetAside::HandedOver => telemetry::handed_over(job.at(&job.step()), why.logged()),
        SetAside::Void => {}
    }
    drop(flight);
}

/// Reports the decision if it is recorded although the answer was lost. Returns whether it is.
async fn report_recorded(engine: &Engine, job: &Job) -> bool {
    let Some(outcome) = &job.undecided else {
        return false;
    };
    let recorded = engine.store.recorded(job.key, &engine.identifier, outcome.kind()).await;
    // If this fails, too, that is unknown.
    let recorded = recorded.unwrap_or(false);
    if recorded {
        outcome.report(job);
    }
    recorded
}

/// Whether this took effect: the run was held under its claim.
async fn set_aside(
    engine: &Engine,
    job: &Job,
    flight: InFlight,
    setting: impl Future<Output = sqlx::Result<bool>>,
) -> bool {
    let set = setting.await;
    drop(flight);
    set.unwrap_or_else(|error| {
        telemetry::release_failed(job.key.root, job.key.id, &error);
        engine.doubt();
        false
    })
}

/// Releases the run, to be retried after a pause.
async fn retry(
    engine: &Engine,
    job: &Job,
    (why, pause, infrastructure): (Why, Duration, bool),
    flight: InFlight,
) {
    let pause = pause.as_secs_f64();
    let after = Release {
        granted: !infrastructure,
        definition: engine.definitions.number_of(&job.saga.definition.saga),
        again: job.tried.counts,
        ..Release::after(job.key, pause, why.recorded.clone())
    };
    if release(engine, after, flight).await {
        let report = if job.attempt() == 0 { telemetry::retried } else { telemetry::retried_again };
        report(job.at(&job.step()), why.logged(), pause, infrastructure);
    }
}

/// Whether this took effect: the run was held under its claim.
async fn release(engine: &Engine, release: Release, flight: InFlight) -> bool {
    let key = release.key;
    let released = engine.store.release(&[release]).await;
    drop(flight);
    engine.set_a_time();
    released.map(|released| released > 0).unwrap_or_else(|error| {
        telemetry::release_failed(key.root, key.id, &error);
        engine.doubt();
        false
    })
}

/// One turn: the next move, and its conclusion.
async fn advance(engine: &Engine, job: &mut Job) -> Result<(), Halt> {
    recall(engine, &job.saga, &mut job.run).await?;
    if std::mem::take(&mut job.overdue) {
        job.reasons = reasons_to_give_up(engine, job).await?;
    }
    let (conclusion, opened) = match std::mem::take(&mut job.reasons) {
        reasons if reasons.is_empty() => {
            // From here on the next move counts as tried, however the call ends.
            job.tried.next = true;
            match next(job)? {
                Continuation::Record(record) => (record.conclude(), None),
                Continuation::Call(call) => call_and_conclude(engine, job, call).await?,
            }
        }
        reasons => give_up(engine, job, reasons).await?,
    };
    let mut persisted = settle(engine, job, conclusion, opened).await?;
    while let Err(StepFailed { context, failure }) = persisted {
        let (conclusion, opened) = match next(job)? {
            Continuation::Call(call) => conclude_failed(engine, job, call, context, failure).await?,
            Continuation::Record(record) => (record.conclude(), None),
        };
        persisted = settle(engine, job, conclusion, opened).await?;
    }
    Ok(())
}

/// Concludes giving up. Cleans up after steps with failed attempts.
async fn give_up(
    engine: &Engine,
    job: &mut Job,
    reasons: Vec<Failure>,
) -> Result<(Conclusion, Option<StepTransaction>), Halt> {
    if let Continuation::Call(call) = next(job)? {
        let failure = Failure::gave_up(&job.run.source, reasons.clone());
        if !cleanups_of(job, call.action()).is_empty() {
            return conclude_failed(engine, job, call, job.run.context.clone(), failure).await;
        }
    }
    job.run.give_up = reasons;
    match next(job)? {
        Continuation::Record(record) => Ok((record.conclude(), None)),
        Continuation::Call(call) => call_and_conclude(engine, job, call).await,
    }
}
