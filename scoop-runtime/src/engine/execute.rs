//! Goes with one run from step to step, as long as nothing has to be waited for.
//!
//! Each turn asks the protocol what is next, calls the user's code if that is what is next, and
//! has what follows written: in the step's own transaction if it opened one (the transactional
//! lane), otherwise together with other runs (the batched lane).

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use scoop_core::{
    Action, Call, Conclusion, Context, Continuation, Error, Failure, Fate, Returned, Run, StepKind,
};
use serde_json::Value;
use sqlx::{Postgres, Transaction};
use tracing::{debug, error, info, warn};

use super::settle::Unsettled;
use super::{Engine, panics};
use crate::RuntimeError;
use crate::error::is_transient;
use crate::payload;
use crate::registry::RunnableSaga;
use crate::saga::Attempted;
use crate::scope::{Opened, Place, Remains, Scope};
use crate::store::{Claimed, FailedPart, Key, Parent, Release, Settled, Settlement, Surroundings};

/// How many events are gathered at most before they are written.
const GATHERED_EVENTS_MAX: usize = 100;

/// How long a failed step may take to roll back before its failure goes on record all the same.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(1);

/// A run that this process works on.
struct Job {
    key: Key,
    saga: Arc<RunnableSaga>,
    payload: Value,
    message: OnceLock<Box<dyn Any + Send + Sync>>,
    attempts: i32,
    retries: u32,
    surroundings: Surroundings,
    /// Whether it may have to give up.
    overdue: bool,
    run: Run,
    /// What travels with it, by the books.
    stored: Context,
    /// Whether the code that is next has run before, in vain.
    tried: bool,
    /// Why it has to give up instead of what is next, if it has to.
    reasons: Vec<Failure>,
}

/// Why a run does not go on here.
enum Halt {
    /// It waits for others, or has ended.
    Settled,
    /// The ground under the step failed; the step is to run again after a pause.
    Infrastructure(String),
    /// The step failed, which does not count yet: it is to run again after this pause.
    Retry { why: String, pause: Duration },
    /// No definition at hand can continue it.
    Stuck(String),
    /// It could not be undone, once more.
    FailedAgain(Box<FailedPart>),
    /// It is not known whether the last thing was written.
    InDoubt(String),
    /// Somebody else has taken it over.
    TakenOver,
}

/// A run that this process works on, for the books: when this is gone, it does not any more.
pub(super) struct InFlight {
    engine: Arc<Engine>,
    key: Key,
}

impl InFlight {
    pub(super) fn begin(engine: Arc<Engine>, key: Key) -> Self {
        engine.in_flight().insert(key.id, key.epoch);
        Self { engine, key }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut in_flight = self.engine.in_flight();
        // The same run may have come back to this process under a later claim.
        if in_flight.get(&self.key.id) == Some(&self.key.epoch) {
            in_flight.remove(&self.key.id);
        }
        drop(in_flight);
        if std::thread::panicking() {
            self.engine.doubt();
        }
    }
}

/// Works on a claimed run until it waits, ends, or has to be left to others.
pub(super) async fn drive(flight: InFlight, claimed: Claimed) {
    let engine = flight.engine.clone();
    let Some(saga) = engine.registry.find(&claimed.topic, &claimed.handler) else {
        unreachable!("only runs of sagas in the registry are claimed");
    };
    let saga = saga.clone();
    let Claimed { key, payload, attempts, retries, surroundings, overdue, run, .. } = claimed;
    let (message, stored) = (OnceLock::new(), run.context.clone());
    let (tried, reasons) = (attempts > 0 || retries > 0, vec![]);
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
        stored,
        tried,
        reasons,
    };
    let mut halt = None;
    while halt.is_none() && !engine.stopping.is_cancelled() {
        halt = advance(&engine, &mut job).await.err();
    }
    // From here on the books and we agree again, or the run is looked up.
    drop(flight);
    match halt {
        Some(halt) => halted(&engine, &job, halt).await,
        None => release(&engine, Release::at_once(job.key)).await,
    }
}

async fn halted(engine: &Engine, job: &Job, halt: Halt) {
    let saga = &*job.saga.definition.saga;
    let run = job.key.id;
    match halt {
        Halt::Settled => {}
        Halt::TakenOver => {
            info!(saga, %run, "the run was taken over; what was done here is void");
            // Or it was ours that was written, and the answer lost.
            engine.doubt();
        }
        Halt::InDoubt(why) => {
            warn!(saga, %run, why, "whether the step was recorded is not known; looking it up");
            engine.doubt();
        }
        Halt::Infrastructure(why) => {
            let pause = engine.settings.backoff.pause(job.attempts).as_secs_f64();
            warn!(saga, %run, why, pause, attempts = job.attempts + 1, "the step will run again");
            release(engine, Release::after(job.key, pause, why, false)).await;
        }
        Halt::Retry { why, pause } => {
            let pause = pause.as_secs_f64();
            info!(saga, %run, why, pause, retries = job.retries + 1, "the step is tried again");
            release(engine, Release::after(job.key, pause, why, true)).await;
        }
        Halt::FailedAgain(failed) => {
            error!(saga, %run, part = failed.part, failure = %failed.failure, "the run could not be undone, again");
            if let Err(error) = engine.store.hold(job.key, &failed).await {
                warn!(%error, saga, %run, "the run could not be set aside");
                engine.doubt();
            }
        }
        Halt::Stuck(reason) => {
            error!(saga, %run, reason, "the run is set aside");
            if let Err(error) = engine.store.set_aside(job.key, &reason).await {
                warn!(%error, saga, %run, "the run could not be set aside");
                engine.doubt();
            }
        }
    }
}

async fn release(engine: &Engine, release: Release) {
    let run = release.key.id;
    if let Err(error) = engine.store.release(&[release]).await {
        warn!(%error, %run, "the run could not be handed back");
        engine.doubt();
    }
    engine.set_a_time();
}

/// One turn: what is next, and what follows from it.
async fn advance(engine: &Engine, job: &mut Job) -> Result<(), Halt> {
    recall(engine, &job.saga, &mut job.run).await?;
    if std::mem::take(&mut job.overdue) {
        job.reasons = reasons_to_give_up(engine, job).await?;
    }
    let (conclusion, opened) = match std::mem::take(&mut job.reasons) {
        reasons if reasons.is_empty() => match next(job)? {
            Continuation::Record(record) => (record.conclude(), None),
            Continuation::Call(call) => call_and_conclude(engine, job, call).await?,
        },
        reasons => give_up(engine, job, reasons).await?,
    };
    settle(engine, job, conclusion, opened).await
}

/// What follows from giving up. A step that was tried in vain is cleaned up after.
async fn give_up(
    engine: &Engine,
    job: &mut Job,
    reasons: Vec<Failure>,
) -> Result<(Conclusion, Option<Opened>), Halt> {
    if job.tried
        && let Continuation::Call(call) = next(job)?
    {
        let failure = Failure::gave_up(&job.run.source, reasons.clone());
        if cleanup_of(job, call.action()).is_some() {
            return conclude_failed(engine, job, call, job.run.context.clone(), failure).await;
        }
    }
    job.run.give_up = reasons;
    match next(job)? {
        Continuation::Record(record) => Ok((record.conclude(), None)),
        Continuation::Call(call) => call_and_conclude(engine, job, call).await,
    }
}

/// Has what follows written: in the transaction of the step, if that opened one.
async fn settle(
    engine: &Engine,
    job: &mut Job,
    conclusion: Conclusion,
    opened: Option<Opened>,
) -> Result<(), Halt> {
    match opened {
        None => settle_batched(engine, job, conclusion).await,
        Some(opened) => settle_within(engine, job, conclusion, opened).await,
    }
}

/// Why the run has to give up, if it has to.
async fn reasons_to_give_up(engine: &Engine, job: &Job) -> Result<Vec<Failure>, Halt> {
    let reasons = engine.reasons_to_give_up(job.key, &job.run, job.surroundings).await;
    reasons
        .map_err(|error| Halt::Infrastructure(format!("whether it is to give up could not be read: {error}")))
}

/// Calls the user's code. If it went well and opened a transaction, that is still open.
async fn call_and_conclude(
    engine: &Engine,
    job: &Job,
    call: Call<'_>,
) -> Result<(Conclusion, Option<Opened>), Halt> {
    let message = match decode(job) {
        Ok(message) => message,
        Err(unfit) => return Ok((call.conclude(job.run.context.clone(), Err(unfit?)), None)),
    };
    let (outcome, opened, context) = perform(engine, job, &call, message).await;
    let error = match outcome {
        Ok(returned) => {
            let conclusion = call.conclude(context, Ok(returned));
            // A jump out of bounds is the step's failure, although its code returned.
            if matches!(&conclusion.fate, Fate::GoesOn(run) if run.path == job.run.path) {
                return Ok((conclusion, opened));
            }
            undo(opened).await;
            return Ok((conclusion, None));
        }
        Err(error) => error,
    };
    // What a failed step did is undone before anything else happens.
    let used_database = opened.is_some();
    undo(opened).await;
    if failed_underneath(&error, used_database) {
        return Err(Halt::Infrastructure(format!("step `{}`: {error}", call.step())));
    }
    if let Some(pause) = pause_before_retry(job, call.action(), &error) {
        return Err(Halt::Retry { why: format!("step `{}`: {error}", call.step()), pause });
    }
    let failure = panics::caught_now(&job.run.source, |source| error.into_failure(source));
    conclude_failed(engine, job, call, context, failure).await
}

/// What follows from the failure of the code that was called, which left this context behind; once the
/// step is cleaned up after, if it has to be.
async fn conclude_failed(
    engine: &Engine,
    job: &Job,
    call: Call<'_>,
    context: Context,
    failure: Failure,
) -> Result<(Conclusion, Option<Opened>), Halt> {
    match (cleanup_of(job, call.action()), decode(job)) {
        (Some(step), Ok(message)) => clean_up(engine, job, call, message, (step, context, failure)).await,
        _ => Ok((call.conclude(context, Err(failure)), None)),
    }
}

/// How long to wait before the failed code is tried again, if it is to be.
fn pause_before_retry(job: &Job, action: &Action, error: &Error) -> Option<Duration> {
    let (step, what) = match action {
        Action::Invoke { step, .. } => (*step, Attempted::Step),
        Action::Compensate { step, .. } => (*step, Attempted::Compensation),
        Action::HandleChildFailure { .. } => return None,
    };
    job.saga.handler.retry(step, what)?.pause(error, job.retries, job.key.id)
}

/// The step that failed, if it has to be cleaned up after.
fn cleanup_of(job: &Job, action: &Action) -> Option<usize> {
    let Action::Invoke { step, .. } = action else {
        return None;
    };
    let next = job.saga.definition.steps.get(step + 1)?;
    (next.kind == StepKind::Finally).then_some(*step)
}

/// Cleans up after a step that failed. What that writes to the database is committed together with
/// the record of the failure; what it launches is not, as the failed step has no instance that could
/// wait for it.
async fn clean_up(
    engine: &Engine,
    job: &Job,
    call: Call<'_>,
    message: &(dyn Any + Send + Sync),
    (step, context, failure): (usize, Context, Failure),
) -> Result<(Conclusion, Option<Opened>), Halt> {
    let mut scope = Scope::new(engine, place(job, &call), context);
    scope.cleans_up();
    let code = async { job.saga.handler.finally(step, &mut scope, message).await };
    let outcome = panics::caught(&job.run.source, code).await;
    engine.watched.forget(job.key.id);
    let Remains { opened, context, .. } = scope.into_remains();
    let Err(error) = outcome else {
        return Ok((call.conclude(context, Err(failure)), opened));
    };
    let used_database = opened.is_some();
    undo(opened).await;
    if failed_underneath(&error, used_database) {
        // The failure of the step is not on record yet, so both are to be run again.
        return Err(Halt::Infrastructure(format!("cleaning up after step `{}`: {error}", call.step())));
    }
    let of_cleanup = panics::caught_now(&job.run.source, |source| error.into_failure(source));
    Ok((call.conclude(context, Err(failure.caused_by([of_cleanup]))), None))
}

/// Rolls the transaction of a failed step back. Where the step was stopped in the middle of a
/// statement that takes long, nobody waits for that; but its connection counts until it is free.
async fn undo(opened: Option<Opened>) {
    if let Some(Opened { transaction, permit, .. }) = opened {
        let rollback = tokio::spawn(async move {
            // A transaction on a lost connection is rolled back by the server.
            let _ = transaction.rollback().await;
            drop(permit);
        });
        let _ = tokio::time::timeout(ROLLBACK_LIMIT, rollback).await;
    }
}

/// What the protocol says is next for this run.
fn next(job: &Job) -> Result<Continuation<'_>, Halt> {
    Continuation::of(&job.saga.definition, &job.run).map_err(|stuck| Halt::Stuck(stuck.to_string()))
}

/// A run on its way back has to know what it had done.
async fn recall(engine: &Engine, saga: &RunnableSaga, run: &mut Run) -> Result<(), Halt> {
    if run.needs_plan() {
        let history = engine.store.history(&saga.definition, run).await;
        let history = history
            .map_err(|error| Halt::Infrastructure(format!("its history could not be read: {error}")))?;
        run.recall(history.plan, history.last, history.any_part_done);
    }
    Ok(())
}

/// The payload as the saga's message, once for all steps. A payload that never fitted is the
/// emitter's mistake, and the run fails; one that fitted when the run began is a mistake of the
/// program at hand, and the run is set aside until another one comes.
fn decode(job: &Job) -> Result<&(dyn Any + Send + Sync), Result<Failure, Halt>> {
    if let Some(message) = job.message.get() {
        return Ok(&**message);
    }
    let decoded = panics::caught_or(&job.run.source, || {
        job.saga.handler.decode(&job.payload).map_err(|error| error.to_string())
    });
    match decoded.unwrap_or_else(|panic| Err(panic.to_string())) {
        Ok(message) => Ok(&**job.message.get_or_init(|| message)),
        Err(error) => {
            let definition = &job.saga.definition;
            let text = format!(
                "the payload of message {} on topic `{}` does not fit the message type of saga `{}`: {error}",
                job.run.message, definition.topic, definition.saga,
            );
            Err(match job.run.last {
                None => Ok(Failure::new("PayloadMismatch", text, &job.run.source)),
                Some(_) => Err(Halt::Stuck(text)),
            })
        }
    }
}

/// Whether the step is to be run again rather than failed: the connection or the server let it
/// down, or what it asked of us, not its own doing.
fn failed_underneath(error: &Error, used_database: bool) -> bool {
    error.is_infrastructure()
        || error.downcast_ref::<RuntimeError>().is_some_and(RuntimeError::is_transient)
        || used_database && error.downcast_ref::<sqlx::Error>().is_some_and(is_transient)
}

/// Calls the user's code. What it returned, the transaction that it opened, and the context that it
/// left behind.
async fn perform(
    engine: &Engine,
    job: &Job,
    call: &Call<'_>,
    message: &(dyn Any + Send + Sync),
) -> (Result<Returned, Error>, Option<Opened>, Context) {
    let mut scope = Scope::new(engine, place(job, call), job.run.context.clone());
    let code = invoke(job, call.action(), &mut scope, message);
    let outcome = match job.saga.handler.timeout(call.action().step()) {
        None => panics::caught(&job.run.source, code).await,
        Some(limit) => match tokio::time::timeout(limit, panics::caught(&job.run.source, code)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::failure(Failure::new(
                "StepTimeout",
                format!("step `{}` took longer than its limit of {limit:?}", call.step()),
                &job.run.source,
            ))),
        },
    };
    engine.watched.forget(job.key.id);
    let Remains { opened, emissions, context, reply } = scope.into_remains();
    let outcome = outcome.and_then(|returned| {
        let limit = engine.settings.payload_bytes_max;
        let what = || format!("what step `{}` returned", call.step());
        let output = returned.output.map(|output| payload::storable(output, limit, what)).transpose()?;
        Ok(Returned { output, emissions, reply, ..returned })
    });
    (outcome, opened, context)
}

/// Where the call stands, as its scope tells it.
fn place<'a>(job: &'a Job, call: &'a Call<'_>) -> Place<'a> {
    let (iteration, handler_iteration) = match call.action() {
        Action::Invoke { iteration, .. } | Action::Compensate { iteration, .. } => (*iteration, None),
        Action::HandleChildFailure { iteration, handler_iteration, .. } => {
            (*iteration, Some(*handler_iteration))
        }
    };
    let outputs = match call.action() {
        Action::Compensate { outputs, .. } => outputs,
        Action::Invoke { .. } | Action::HandleChildFailure { .. } => &job.run.outputs,
    };
    Place {
        key: job.key,
        surroundings: job.surroundings,
        run: &job.run,
        definition: &job.saga.definition,
        handler: &job.saga.definition.saga,
        step: call.step(),
        iteration,
        handler_iteration,
        attempt: u32::try_from(job.attempts).unwrap_or(0) + job.retries,
        outputs,
        cleanup: false,
    }
}

async fn invoke(
    job: &Job,
    action: &Action,
    scope: &mut Scope<'_>,
    message: &(dyn Any + Send + Sync),
) -> Result<Returned, Error> {
    let handler = &job.saga.handler;
    match action {
        Action::Invoke { step, .. } => {
            let end = handler.invoke(*step, scope, message).await?;
            Ok(Returned { next: Some(end.next), output: end.output, ..Returned::nothing() })
        }
        Action::Compensate { step, cause, finally, .. } => {
            if job.saga.definition.steps[*step].compensated {
                handler.compensate(*step, scope, message, cause).await?;
            }
            if *finally {
                scope.cleans_up();
                handler.finally(*step, scope, message).await?;
            }
            Ok(Returned::nothing())
        }
        Action::HandleChildFailure { step, failure, .. } => {
            let next = handler.on_child_failure(*step, scope, message, failure).await?;
            Ok(Returned { next, ..Returned::nothing() })
        }
    }
}

/// Adds what follows without any code of the user, so that it costs no commit of its own: the
/// COMMITTED after a last step, the parts of a rollback that undo nothing.
async fn gather(engine: &Engine, saga: &RunnableSaga, mut conclusion: Conclusion) -> Conclusion {
    while !conclusion.involves_others() && conclusion.events.len() < GATHERED_EVENTS_MAX {
        let Fate::GoesOn(run) = &mut conclusion.fate else {
            break;
        };
        // What cannot be read now is read in the next turn.
        if recall(engine, saga, run).await.is_err() {
            break;
        }
        let Ok(Continuation::Record(record)) = Continuation::of(&saga.definition, run) else {
            break;
        };
        let following = record.conclude();
        conclusion = conclusion.followed_by(following);
    }
    conclusion
}

/// The batched lane.
async fn settle_batched(engine: &Engine, job: &mut Job, conclusion: Conclusion) -> Result<(), Halt> {
    if let Fate::FailedAgain { part, handler_iteration, failure } = conclusion.fate {
        return Err(Halt::FailedAgain(Box::new(FailedPart { part, handler_iteration, failure })));
    }
    let conclusion = gather(engine, &job.saga, conclusion).await;
    let after = After::of(&conclusion);
    let settlement = Settlement::new(job.key, &job.run, (job.surroundings, &job.stored), conclusion);
    let sets_a_time = settlement.sets_a_time();
    match engine.settler.settle(settlement).await {
        Ok(settled) => proceed(engine, job, settled, after, sets_a_time),
        Err(Unsettled::TakenOver) => refused(engine, job, after).await,
        Err(Unsettled::Refused(error)) => {
            Err(Halt::Stuck(format!("what follows from the step cannot be written: {error}")))
        }
        Err(Unsettled::Stopped) => Err(Halt::InDoubt("the engine stopped".into())),
    }
}

/// The transactional lane: what follows is written in the step's own transaction.
async fn settle_within(
    engine: &Engine,
    job: &mut Job,
    conclusion: Conclusion,
    opened: Opened,
) -> Result<(), Halt> {
    let conclusion = gather(engine, &job.saga, conclusion).await;
    let after = After::of(&conclusion);
    // A failure goes on record even if what the cleanup wrote does not.
    let failing = (after.backward && !job.run.is_backward()).then(|| conclusion.clone());
    let settlement = Settlement::new(job.key, &job.run, (job.surroundings, &job.stored), conclusion);
    let sets_a_time = settlement.sets_a_time();
    match commit_with(engine, job.key, settlement, opened).await {
        Ok(settled) => proceed(engine, job, settled, after, sets_a_time),
        Err(Uncommitted::Halt(Halt::TakenOver)) => refused(engine, job, after).await,
        Err(Uncommitted::Halt(halt)) => Err(halt),
        Err(Uncommitted::Failed(why)) => match failing {
            Some(conclusion) => settle_batched(engine, job, conclusion).await,
            None => fail(engine, job, after.context, &why).await,
        },
    }
}

/// What followed was not written, since somebody else has the run, or since it has to give up.
async fn refused(engine: &Engine, job: &mut Job, after: After) -> Result<(), Halt> {
    let reasons = reasons_to_give_up(engine, job).await?;
    if reasons.is_empty() {
        return Err(Halt::TakenOver);
    }
    // What the step changed of the context outlives it.
    job.run.context = after.context;
    (job.tried, job.reasons) = (true, reasons);
    Ok(())
}

/// What is to be known of a conclusion when it has been written.
struct After {
    /// Where the run stands, if it goes on.
    run: Option<Run>,
    backward: bool,
    context: Context,
}

impl After {
    fn of(conclusion: &Conclusion) -> Self {
        let context = conclusion.context().cloned().unwrap_or_default();
        match &conclusion.fate {
            Fate::GoesOn(run) => Self { backward: run.is_backward(), run: Some(run.clone()), context },
            Fate::Committed => Self { run: None, backward: false, context },
            Fate::RolledBack { .. } | Fate::RollbackFailed { .. } | Fate::FailedAgain { .. } => {
                Self { run: None, backward: true, context }
            }
        }
    }
}

/// Why the transaction of a step was not committed.
enum Uncommitted {
    /// The run does not go on here.
    Halt(Halt),
    /// It is the step's own doing.
    Failed(String),
}

/// Writes what follows into the transaction of the step, and commits it.
async fn commit_with(
    engine: &Engine,
    key: Key,
    settlement: Settlement,
    opened: Opened,
) -> Result<Settled, Uncommitted> {
    let Opened { mut transaction, permit: _permit, started } = opened;
    let claim = format!("{}/{}", key.id, key.epoch);
    let settlements = std::slice::from_ref(&settlement);
    let settled = engine.store.settle(&mut *transaction, &engine.identifier, settlements, Some(&claim)).await;
    let settled = match settled {
        Ok(mut settled) => settled.remove(&(key.id, key.epoch)),
        Err(error) => return Err(not_written(error)),
    };
    let Some(mut settled) = settled else {
        return Err(match is_open(&mut transaction, &claim).await {
            Ok(true) => Uncommitted::Halt(Halt::TakenOver),
            Ok(false) => Uncommitted::Failed(SELF_ENDED.into()),
            Err(error) => Uncommitted::Halt(Halt::InDoubt(error.to_string())),
        });
    };
    match transaction.commit().await {
        Ok(()) => {
            settled.started.extend(started);
            Ok(settled)
        }
        Err(error) if is_transient(&error) => Err(Uncommitted::Halt(Halt::InDoubt(error.to_string()))),
        Err(error) => {
            let why = format!("the transaction of the step could not be committed: {error}");
            Err(Uncommitted::Failed(why))
        }
    }
}

const SELF_ENDED: &str = "the step ended its transaction itself (COMMIT or ROLLBACK); use nested \
    transactions, and leave the outer one to the engine";

const WENT_ON: &str = "a statement of the step failed, and the step went on as if it had not; pass its \
    error on, or guard it with a nested transaction";

/// Somebody had the run's row locked for longer than the pool of the user allows.
const LOCK_NOT_AVAILABLE: &str = "55P03";

const IN_FAILED_TRANSACTION: &str = "25P02";

/// Whose fault it is that nothing could be written.
fn not_written(error: sqlx::Error) -> Uncommitted {
    if is_transient(&error) {
        // Where the server answered, there is no doubt.
        let answered = error.as_database_error().is_some();
        let why = error.to_string();
        return Uncommitted::Halt(if answered { Halt::Infrastructure(why) } else { Halt::InDoubt(why) });
    }
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    match &*code {
        LOCK_NOT_AVAILABLE => Uncommitted::Halt(Halt::Infrastructure(error.to_string())),
        IN_FAILED_TRANSACTION => Uncommitted::Failed(WENT_ON.into()),
        _ => Uncommitted::Failed(format!("what follows from the step could not be written: {error}")),
    }
}

/// The step, whose code returned well and left this context behind, has failed after all.
async fn fail(engine: &Engine, job: &mut Job, context: Context, why: &str) -> Result<(), Halt> {
    let failure = Failure::new("TransactionError", why, &job.run.source);
    let (conclusion, opened) = match next(job)? {
        Continuation::Call(call) => conclude_failed(engine, job, call, context, failure).await?,
        Continuation::Record(record) => (record.conclude(), None),
    };
    // It does not come back here: a failure is written even if its transaction cannot be.
    Box::pin(settle(engine, job, conclusion, opened)).await
}

/// Whether the transaction is still the one that the engine began.
async fn is_open(transaction: &mut Transaction<'static, Postgres>, claim: &str) -> sqlx::Result<bool> {
    let current: Option<String> = sqlx::query_scalar("SELECT current_setting('scoop_run.claim', true)")
        .fetch_one(&mut **transaction)
        .await?;
    Ok(current.as_deref() == Some(claim))
}

/// What was settled is true now: whoever has to know is told, and the run goes on if it can.
fn proceed(
    engine: &Engine,
    job: &mut Job,
    settled: Settled,
    after: After,
    sets_a_time: bool,
) -> Result<(), Halt> {
    engine.announce(&settled.started);
    if sets_a_time {
        engine.set_a_time();
    }
    if settled.ended {
        match job.run.lineage.parent() {
            Some(parent) if job.surroundings.has_parent => {
                let (root, id) = (parent.root_id(), parent.id());
                engine.wakeups.child_ended(Parent { root, id, at: settled.last_event_at });
            }
            _ => engine.waiters.root_ended(job.key.root),
        }
    }
    match after.run {
        Some(run) if settled.goes_on => {
            job.surroundings.undoing |= run.is_backward();
            job.stored = run.context.clone();
            job.run = run;
            job.key.epoch += 1;
            job.attempts = 0;
            job.retries = 0;
            job.tried = false;
            job.overdue = settled.overdue;
            Ok(())
        }
        _ => {
            debug!(run = %job.key.id, ended = settled.ended, "the run leaves this process");
            Err(Halt::Settled)
        }
    }
}
