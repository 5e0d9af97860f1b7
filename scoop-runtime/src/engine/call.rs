//! Calls the user's code for one move of a run, and says what follows from how it ended.

use std::any::Any;
use std::time::Duration;

use scoop_core::{
    Action, Call, Conclusion, Context, Error, Failure, Fate, Returned, SLEEP_HANDLER, StepKind,
};
use tracing::Instrument as _;

use super::execute::{Halt, Job, Why};
use super::{Engine, Opened, panics};
use crate::RuntimeError;
use crate::bug::{Bug, made};
use crate::error::is_transient_in_step;
use crate::payload;
use crate::saga::Attempted;
use crate::scope::{Place, Remains, Scope, UnfitValue};
use crate::telemetry::{self, Code};

/// How long a failed step may take to roll back before its failure goes on record all the same.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(1);

/// Calls the user's code. If it went well and opened a transaction, that is still open.
pub(super) async fn call_and_conclude(
    engine: &Engine,
    job: &Job,
    call: Call<'_>,
) -> Result<(Conclusion, Option<Opened>), Halt> {
    let message = match decode(job) {
        Ok(message) => message,
        Err(unfit) => return Ok((call.conclude(job.run.context.clone(), Err(unfit?)), None)),
    };
    if made(Bug::CompensateTwice) && matches!(call.action(), Action::Compensate { .. }) {
        let _ = perform(engine, job, &call, message).await;
    }
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
        return Err(Halt::Infrastructure(why(&format!("step `{}`", call.step()), &error)));
    }
    if let Some(unfit) = error.downcast_ref::<UnfitValue>() {
        return Err(Halt::Stuck(format!("step `{}`: {unfit}", call.step()).into()));
    }
    if let Some(pause) = pause_before_retry(job, call.action(), &error) {
        return Err(Halt::Retry { why: why(&format!("step `{}`", call.step()), &error), pause });
    }
    let failure = panics::caught_now(&job.run.source, |source| error.into_failure(source));
    conclude_failed(engine, job, call, context, failure).await
}

/// Why a run stops after this error, which may quote data.
fn why(what: &str, error: &Error) -> Why {
    let logged = telemetry::quotes_data(error).then(|| format!("{what}: {}", telemetry::WITHHELD));
    Why { recorded: format!("{what}: {error}"), logged }
}

/// What follows from the failure of the code that was called, which left this context behind; once the steps that
/// were tried are cleaned up after.
pub(super) async fn conclude_failed(
    engine: &Engine,
    job: &Job,
    call: Call<'_>,
    context: Context,
    failure: Failure,
) -> Result<(Conclusion, Option<Opened>), Halt> {
    let steps = cleanups_of(job, call.action());
    match decode(job) {
        Ok(message) if !steps.is_empty() => {
            clean_up(engine, job, call, message, (steps, context, failure)).await
        }
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

/// The steps that have to be cleaned up after if the run ends here: the one that is next, if it was tried, and those that
/// another program tried in its place.
pub(super) fn cleanups_of(job: &Job, action: &Action) -> Vec<usize> {
    let Action::Invoke { step, .. } = action else {
        return vec![];
    };
    let cleans_up = |step: &usize| {
        let next = job.saga.definition.steps.get(step + 1);
        next.is_some_and(|next| next.kind == StepKind::Finally)
    };
    let own = Some(*step).filter(|_| job.tried.next);
    own.into_iter().chain(job.tried.others.iter().copied()).filter(cleans_up).collect()
}

/// Cleans up after steps that failed. What that writes to the database is committed together with
/// the record of the failure; what it launches is not, as the failed step has no instance that could
/// wait for it.
async fn clean_up(
    engine: &Engine,
    job: &Job,
    call: Call<'_>,
    message: &(dyn Any + Send + Sync),
    (steps, context, failure): (Vec<usize>, Context, Failure),
) -> Result<(Conclusion, Option<Opened>), Halt> {
    let definition = &job.saga.definition;
    let mut scope = Scope::new(engine, place(job, &call), context);
    let mut outcome = Ok(());
    for step in steps {
        let name = &*definition.steps[step].name;
        scope.cleans_up_after(name, job.run.iteration_of(definition, step));
        let code = job.saga.handler.finally(step, &mut scope, message);
        let code = code.instrument(telemetry::step_span(job.at(name), Code::Finally));
        outcome = panics::caught(&job.run.source, code).await;
        if outcome.is_err() {
            break;
        }
    }
    engine.watched.forget(job.key.id);
    let Remains { opened, context, .. } = scope.into_remains();
    let Err(error) = outcome else {
        return Ok((call.conclude(context, Err(failure)), opened));
    };
    let used_database = opened.is_some();
    undo(opened).await;
    if failed_underneath(&error, used_database) {
        // The failure of the step is not on record yet, so both are to be run again.
        return Err(Halt::Infrastructure(why(&format!("cleaning up after step `{}`", call.step()), &error)));
    }
    let of_cleanup = panics::caught_now(&job.run.source, |source| error.into_failure(source));
    Ok((call.conclude(context, Err(failure.caused_by([of_cleanup]))), None))
}

/// Rolls the transaction of a failed step back. Where the step was stopped in the middle of a
/// statement that takes long, nobody waits for that; but its connection counts until it is free.
pub(super) async fn undo(opened: Option<Opened>) {
    if let Some(opened) = opened {
        let _ = tokio::time::timeout(ROLLBACK_LIMIT, tokio::spawn(opened.rollback())).await;
    }
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
                "the payload of message {} on topic `{}` does not fit the message type of saga `{}`",
                job.run.message, definition.topic, definition.saga,
            );
            let recorded = format!("{text}: {error}");
            Err(match job.run.last {
                None => Ok(Failure::new("PayloadMismatch", recorded, &job.run.source)),
                Some(_) => Err(Halt::Stuck(Why { recorded, logged: Some(text) })),
            })
        }
    }
}

/// Whether the step is to be run again rather than failed: the connection or the server let it
/// down, or what it asked of us, not its own doing.
fn failed_underneath(error: &Error, used_database: bool) -> bool {
    error.is_infrastructure()
        || error.downcast_ref::<RuntimeError>().is_some_and(RuntimeError::is_transient)
        || used_database && error.downcast_ref::<sqlx::Error>().is_some_and(is_transient_in_step)
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
    let code = invoke(job, call, &mut scope, message);
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
    let Remains { opened, emissions, context, replies } = scope.into_remains();
    let outcome = outcome.and_then(|returned| {
        let limit = engine.settings.payload_bytes_max;
        let what = || format!("what step `{}` returned", call.step());
        let output = returned.output.map(|output| payload::storable(output, limit, what)).transpose()?;
        Ok(Returned { output, emissions, replies, ..returned })
    });
    let outcome = outcome.and_then(|returned| rehearsed(engine, job, call).map_or(Ok(returned), Err));
    (outcome, opened, context)
}

/// Why a step that ended well is to fail all the same.
fn rehearsed(engine: &Engine, job: &Job, call: &Call<'_>) -> Option<Error> {
    let rehearsal = engine.settings.rehearsal.as_ref()?;
    let (saga, source) = (&job.saga.definition.saga, &job.run.source);
    let Action::Invoke { iteration, .. } = call.action() else {
        return None;
    };
    if saga == SLEEP_HANDLER {
        return None;
    }
    rehearsal.fails(saga, job.key.id, call.step(), *iteration, source).map(Error::failure)
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
        step: call.step(),
        iteration,
        handler_iteration,
        attempt: job.attempt(),
        outputs,
        cleanup: false,
    }
}

async fn invoke(
    job: &Job,
    call: &Call<'_>,
    scope: &mut Scope<'_>,
    message: &(dyn Any + Send + Sync),
) -> Result<Returned, Error> {
    let handler = &job.saga.handler;
    let span = |code| telemetry::step_span(job.at(call.step()), code);
    match call.action() {
        Action::Invoke { step, .. } => {
            let code = match job.saga.definition.steps[*step].kind {
                StepKind::Finally => Code::Finally,
                StepKind::Code | StepKind::Wait => Code::Step,
            };
            let end = handler.invoke(*step, scope, message).instrument(span(code)).await?;
            Ok(Returned { next: Some(end.next), output: end.output, ..Returned::nothing() })
        }
        Action::Compensate { step, cause, finally, .. } => {
            if job.saga.definition.steps[*step].compensated {
                let undoing = handler.compensate(*step, scope, message, cause);
                undoing.instrument(span(Code::Compensation)).await?;
            }
            if *finally {
                scope.cleans_up();
                handler.finally(*step, scope, message).instrument(span(Code::Finally)).await?;
            }
            Ok(Returned::nothing())
        }
        Action::HandleChildFailure { step, failure, .. } => {
            let handling = handler.on_child_failure(*step, scope, message, failure);
            let next = handling.instrument(span(Code::ChildFailure)).await?;
            Ok(Returned { next, ..Returned::nothing() })
        }
    }
}
