//! Calls the user code of one move of a run, and derives the conclusion from its result.

pub(super) mod at_most_once;
pub(super) mod authorize;
pub(super) mod running;
mod services;

use std::any::Any;
use std::fmt::Display;
use std::time::Duration;

use futures_util::FutureExt;
use scoop_core::{
    Action, Call, Conclusion, Context, Delivery, Error, Failure, Fate, NextExecution, Returned, StepKind,
};

use self::running::Stop;
use super::execution::{Execution, Exit};
use super::handover::{IfRefused, hand_to_another};
use super::shared::Engine;
use crate::RuntimeError;
use crate::engine::why::Why;
use crate::error::sqlstate::RolledBack;
use crate::error::{is_of_infrastructure, is_of_stale_statement, leaves_out_of_step};
use crate::saga::registry::RunnableSaga;
use crate::saga::scope::{CallSite, Scope, ScopeOutput, UnfitSignal, UnfitValue};
use crate::saga::{DecodeError, Handler, RetryTarget, StepEnd};
use crate::store::{HandOver, StepTransaction, roll_back};
use crate::telemetry::metrics::StepTimer;
use crate::telemetry::{self, Code};
use crate::util::ids;
use crate::util::panic_boundary::{self, DropGuarded, Stopped};
use crate::util::payload::{self, StepName, Unstorable};
use crate::util::sync::lock;

/// Calls the user code. After a success its transaction is still open, if it opened one.
pub(super) async fn call_and_conclude(
    engine: &Engine,
    execution: &Execution,
    call: Call<'_>,
) -> Result<(Conclusion, Option<StepTransaction>), Exit> {
    let message = match message_of(engine, execution, call.step()).await? {
        Ok(message) => message,
        Err(failure) => return Ok((call.conclude(execution.run.context.clone(), Err(failure)), None)),
    };
    if let Some(failure) = authorize::unauthorized(execution, &call, message) {
        return conclude_failed(engine, execution, call, execution.run.context.clone(), failure).await;
    }
    let UserCodeEnd { outcome, opened, context, has_begun } =
        run_user_code(engine, execution, &call, message).await;
    let error = match outcome {
        Err(Failed::Abandoned) => {
            roll_back(opened).await;
            return Err(match has_begun {
                // It counts as an attempt, so that the next claim looks for the beginning.
                true => Exit::Infrastructure(format!("step `{}` was stopped", call.step()).into()),
                false => Exit::Abandoned,
            });
        }
        Ok(returned) => {
            let conclusion = call.conclude(context, Ok(returned));
            // A jump out of bounds is the step's failure, although its code returned.
            if matches!(&conclusion.fate, Fate::GoesOn(run) if run.path == execution.run.path) {
                return Ok((conclusion, opened));
            }
            roll_back(opened).await;
            return Ok((conclusion, None));
        }
        Err(Failed::Error(error)) => error,
    };
    // The transaction of a failed step is rolled back before anything else happens.
    let rolled_back = roll_back_failed(execution, opened, &error).await;
    let mut of_signal = None;
    let failure = judge(execution, &format!("step `{}`", call.step()), error, rolled_back, |error| {
        if let Some(unfit) = UnfitValue::find_in(error) {
            let why = |what: &dyn Display| format!("step `{}`: {what}", call.step());
            let why = Why { recorded: why(unfit), logged: Some(why(&unfit.what)) };
            of_signal = unfit.signal.clone().map(|signal| (signal, unfit.why.clone()));
            return Ok(Some(match &unfit.reply_type {
                // The code of a step that runs at most once has run up to the reply: no other program may run it.
                Some(_) if has_begun => return Ok(None),
                Some(reply_type) => Exit::UnfitReply { why, reply_type: reply_type.clone() },
                None => Exit::Stuck(why),
            }));
        }
        let pause = pause_before_retry(execution, &call, error)?;
        Ok(pause.map(|pause| Exit::Retry { why: why(&format!("step `{}`", call.step()), error), pause }))
    });
    let failure = match failure {
        // This is a mistake of the sender, unless another program can read the signal.
        Err(Exit::Stuck(why)) if let Some((signal, reason)) = &of_signal => {
            let saga = &execution.saga.definition.saga;
            if hand_to_another(engine, execution.key, saga, &why.recorded, IfRefused::Retain, None).await
                == HandOver::HandedOver
            {
                execution.handed_over(call.step(), &why);
                return Err(Exit::Settled);
            }
            if execution.waited_last_in(&signal.steps) {
                return Err(Exit::SignalRefused(signal.refused(reason, why)));
            }
            // An earlier step has taken the signal: no other one can replace it.
            Failure::new(
                "SignalMismatch",
                mismatch(execution, call.step(), signal, reason),
                &execution.run.source,
            )
        }
        other => other?,
    };
    conclude_failed(engine, execution, call, context, failure).await
}

/// Rolls back the transaction of user code that failed with this error. A connection with a stale statement is closed, and one
/// that is out of step.
fn roll_back_failed(
    execution: &Execution,
    mut opened: Option<StepTransaction>,
    error: &Error,
) -> impl Future<Output = RolledBack> + use<> {
    if let Some(opened) = &mut opened {
        let is = |found: fn(&Error) -> bool| {
            panic_boundary::run(&execution.run.source, || found(error)).unwrap_or(false)
        };
        if is(is_of_stale_statement) {
            opened.close_in_the_end();
        }
        if is(leaves_out_of_step) {
            opened.abandon();
        }
    }
    roll_back(opened)
}

/// The text of the failure of a step that cannot read a signal which an earlier one has taken.
fn mismatch(execution: &Execution, step: &str, signal: &UnfitSignal, reason: &str) -> String {
    let UnfitSignal { name, expected, .. } = signal;
    let (run, saga) = (execution.key.id, &execution.saga.definition.saga);
    format!(
        "the signal `{name}` is not a `{expected}`, as which step `{step}` of saga `{saga}` reads it in run {run}: \
         {reason}. Change that type so that it reads what was sent; then launch the message of the run again"
    )
}

impl UnfitSignal {
    /// Why the run waits for another one.
    fn refused(&self, reason: &str, why: Why) -> Why {
        let Self { name, expected, .. } = self;
        let text = |reason: &str| format!("a signal was refused: `{name}` is not a `{expected}`: {reason}");
        Why { recorded: text(reason), logged: why.logged.map(|_| text(telemetry::WITHHELD)) }
    }
}

/// The message of the run for this step; or the failure of the step, if no living program can decode the message.
pub(super) async fn message_of<'a>(
    engine: &Engine,
    execution: &'a Execution,
    step: &str,
) -> Result<Result<&'a (dyn Any + Send + Sync), Failure>, Exit> {
    let why = match decode(execution) {
        Ok(message) => return Ok(Ok(message)),
        Err(Unfit::Begun(why)) => return Err(Exit::Stuck(why)),
        Err(Unfit::Incomplete(failure)) => return Ok(Err(*failure)),
        Err(Unfit::Fresh(why)) => why,
    };
    let saga = &execution.saga.definition.saga;
    if hand_to_another(engine, execution.key, saga, &why.recorded, IfRefused::Retain, None).await
        == HandOver::HandedOver
    {
        execution.handed_over(step, &why);
        return Err(Exit::Settled);
    }
    Ok(Err(Failure::new("PayloadMismatch", why.recorded, &execution.run.source)))
}

/// Turns an error of user code into the failure of the step, or a reason to run it again, and drops the error. A panic
/// in any function of the error, or of a function that gets it, is the failure.
fn judge(
    execution: &Execution,
    what: &str,
    error: Error,
    rolled_back: RolledBack,
    otherwise: impl FnOnce(&Error) -> Result<Option<Exit>, Failure>,
) -> Result<Failure, Exit> {
    let source = &execution.run.source;
    let of_error = || panic_boundary::named(format!("`Display` or `source` of the error of {what}"));
    let exit = panic_boundary::run(source, || {
        let of_infrastructure =
            rolled_back == RolledBack::LostConnection || is_of_infrastructure(&error, rolled_back);
        if of_infrastructure { Ok(Some(Exit::Infrastructure(why(what, &error)))) } else { otherwise(&error) }
    });
    let exit = exit.map_err(of_error()).flatten();
    let failure = panic_boundary::run(source, || error.to_failure(source)).unwrap_or_else(of_error());
    // In a call of its own: a panic in this during the unwinding of another one could not be caught.
    let dropped = panic_boundary::discard(source, error);
    let dropped = dropped.map_err(panic_boundary::named(format!("`Drop` of the error of {what}")));
    let (exit, panic) = match exit {
        Ok(exit) => (exit, dropped.err()),
        Err(panic) => (None, Some(panic)),
    };
    match (panic, exit) {
        (Some(panic), _) if panic == failure => Ok(failure),
        (Some(panic), _) => Ok(panic.caused_by([failure])),
        (None, Some(exit)) => Err(exit),
        (None, None) => Ok(failure),
    }
}

/// The reason for which a run stops after this error, which may quote data.
fn why(what: &str, error: &Error) -> Why {
    let logged = telemetry::quotes_data(error).then(|| format!("{what}: {}", telemetry::WITHHELD));
    Why { recorded: format!("{what}: {error}"), logged }
}

/// Concludes the failure of user code, which left this context behind, after the cleanup of the steps that were tried.
pub(super) async fn conclude_failed(
    engine: &Engine,
    execution: &Execution,
    call: Call<'_>,
    context: Context,
    failure: Failure,
) -> Result<(Conclusion, Option<StepTransaction>), Exit> {
    let steps = cleanups_of(execution, call.action());
    match decode(execution) {
        Ok(message) if !steps.is_empty() => {
            run_finally(engine, execution, call, message, Cleanup { steps, context, failure }).await
        }
        _ => Ok((call.conclude(context, Err(failure)), None)),
    }
}

/// The pause before the failed code is retried, if it is to be; or the panic of the user's condition.
fn pause_before_retry(
    execution: &Execution,
    call: &Call<'_>,
    error: &Error,
) -> Result<Option<Duration>, Failure> {
    let (step, what) = match call.action() {
        Action::Invoke { step, .. } => (*step, RetryTarget::Step),
        Action::Compensate { step, .. } => (*step, RetryTarget::Compensation),
        Action::HandleChildFailure { .. } => return Ok(None),
    };
    let pause = panic_boundary::run(&execution.run.source, || {
        execution.saga.handler.retry(step, what)?.pause(error, execution.retries, execution.key.id)
    });
    pause.map_err(panic_boundary::named(format!("`retry(when = ..)` of step `{}`", call.step())))
}

/// The steps to clean up after if the run ends here: the next one, if it was tried, and those that another program
/// tried in its place.
pub(super) fn cleanups_of(execution: &Execution, action: &Action) -> Vec<usize> {
    let Action::Invoke { step, .. } = action else {
        return vec![];
    };
    let cleans_up = |step: &usize| {
        let next = execution.saga.definition.steps.get(step + 1);
        next.is_some_and(|next| next.kind == StepKind::Finally)
    };
    let own = Some(*step).filter(|_| execution.attempt_history.next);
    own.into_iter().chain(execution.attempt_history.others.iter().copied()).filter(cleans_up).collect()
}

/// The cleanup of failed steps.
struct Cleanup {
    /// Their positions, in the order of the calls.
    steps: Vec<usize>,
    /// The context that the failed code left behind.
    context: Context,
    failure: Failure,
}

/// Cleans up after failed steps. Its writes are committed together with the record of the failure; its launches are
/// not, since the failed step has no instance that could wait for them.
async fn run_finally(
    engine: &Engine,
    execution: &Execution,
    call: Call<'_>,
    message: &(dyn Any + Send + Sync),
    Cleanup { steps, context, failure }: Cleanup,
) -> Result<(Conclusion, Option<StepTransaction>), Exit> {
    let definition = &execution.saga.definition;
    let mut scope = Scope::new(engine.step_services(), call_site(execution, &call), context);
    let mut outcome = Ok(Ok(()));
    for step in steps {
        let name = &*definition.steps[step].name;
        scope.cleans_up_after(step, execution.run.iteration_of(definition, step));
        let entry = engine.running.enter(&definition.saga, execution.key.id, name);
        let code = async { execution.saga.handler.finally(step, &mut scope, message).await };
        let span = execution.span.step(execution.at(name), Code::Finally, None);
        let timer = StepTimer::begin(execution.timed(step), Code::Finally, &span);
        let code = span.around(code).map(|result| timer.result(result));
        let code = entry.contains(&engine.store, code);
        outcome = panic_boundary::call(&execution.run.source, engine.running.stop(None), code).await;
        if !matches!(outcome, Ok(Ok(()))) {
            break;
        }
    }
    engine.stop_signals.forget(execution.key.id);
    let ScopeOutput { transaction: opened, context, .. } = scope.into_output();
    let Ok(outcome) = outcome else {
        // It has no limit.
        roll_back(opened).await;
        return Err(Exit::Abandoned);
    };
    let Err(error) = outcome else {
        return Ok((call.conclude(context, Err(failure)), opened));
    };
    let rolled_back = roll_back_failed(execution, opened, &error).await;
    // If the database failed, the failure of the step is not recorded yet: both run again.
    let of_cleanup =
        judge(execution, &format!("cleaning up after step `{}`", call.step()), error, rolled_back, |_| {
            Ok(None)
        })?;
    Ok((call.conclude(context, Err(failure.caused_by([of_cleanup]))), None))
}

/// The reason for which the payload is not a message of the saga.
enum Unfit {
    /// The run has not begun: this is a mistake of the emitter, unless another program can decode the payload.
    Fresh(Why),
    /// The payload fitted when the run began: this is a mistake of the program at hand.
    Begun(Why),
    /// It is a set of messages that was not complete in time, which is the failure of the run.
    Incomplete(Box<Failure>),
}

/// Decodes the payload as the message of the saga, once for all steps.
fn decode(execution: &Execution) -> Result<&(dyn Any + Send + Sync), Unfit> {
    if let Some(message) = execution.message.get() {
        return Ok(message.get());
    }
    let decoded = panic_boundary::run(&execution.run.source, || {
        let RunnableSaga { definition, handler, .. } = &*execution.saga;
        match handler.decode(&definition.topic, &execution.payload) {
            Ok(message) => Ok(Ok(message)),
            Err(DecodeError::Incomplete(join)) => Ok(Err(join.to_failure(&execution.run.source))),
            Err(DecodeError::Unfit(error)) => Err(error.to_string()),
        }
    });
    match decoded.unwrap_or_else(|panic| Err(panic.to_string())) {
        Ok(Err(failure)) => Err(Unfit::Incomplete(Box::new(failure))),
        Ok(Ok(message)) => Ok(execution.message.get_or_init(|| DropGuarded::new(message)).get()),
        Err(error) => {
            let definition = &execution.saga.definition;
            let message = match execution.run.execution.number {
                0 => format!("message {}", execution.run.message),
                number => format!("the message of execution {} of run {}", number + 1, execution.key.id),
            };
            let text = format!(
                "the payload of {message} on topic `{}` does not fit the message type of saga `{}`",
                definition.topic, definition.saga,
            );
            // A program of this saga has written the message of a later execution.
            let is_fresh = execution.run.last.is_none() && execution.run.execution.number == 0;
            let unfit = if is_fresh { Unfit::Fresh } else { Unfit::Begun };
            Err(unfit(Why { recorded: format!("{text}: {error}"), logged: Some(text) }))
        }
    }
}

/// Results of user code other than success.
enum Failed {
    Error(Error),
    /// It was stopped, which has no consequence for its run.
    Abandoned,
}

struct UserCodeEnd {
    outcome: Result<Returned, Failed>,
    /// The transaction that it opened.
    opened: Option<StepTransaction>,
    context: Context,
    /// Whether the beginning of a step that runs at most once is recorded, or may be.
    has_begun: bool,
}

async fn run_user_code(
    engine: &Engine,
    execution: &Execution,
    call: &Call<'_>,
    message: &(dyn Any + Send + Sync),
) -> UserCodeEnd {
    let entry = engine.running.enter(&execution.saga.definition.saga, execution.key.id, call.step());
    let mut scope =
        Scope::new(engine.step_services(), call_site(execution, call), execution.run.context.clone());
    let source = &execution.run.source;
    if let Action::Compensate { cause: failure, .. } | Action::HandleChildFailure { failure, .. } =
        call.action()
    {
        warn_of_unread_values(engine, execution, call.step(), failure);
    }
    let limit = panic_boundary::run(source, || execution.saga.handler.timeout(call.action().step()));
    let outcome = match limit.map_err(panic_boundary::named(format!("`timeout` of step `{}`", call.step()))) {
        Ok(limit) => {
            let code = entry.contains(&engine.store, invoke(execution, call, &mut scope, message));
            match panic_boundary::call(source, engine.running.stop(limit), code).await {
                Ok(outcome) => outcome.map_err(Failed::Error),
                Err(Stopped { why: Stop::Late(limit), panic }) => {
                    let dropped = format!("the drop of step `{}` at its timeout", call.step());
                    let late = timed_out(execution, call, limit)
                        .caused_by(panic.map(panic_boundary::named(dropped)));
                    Err(Failed::Error(Error::failure(late)))
                }
                Err(Stopped { why: Stop::Abandoned, .. }) => Err(Failed::Abandoned),
            }
        }
        Err(panic) => Err(Failed::Error(Error::failure(panic))),
    };
    engine.stop_signals.forget(execution.key.id);
    let ScopeOutput { transaction: opened, emissions, context, replies, wait, signals, has_begun, ignored } =
        scope.into_output();
    let outcome = outcome.and_then(|returned| match ignored {
        Some(error) => Err(Failed::Error(error)),
        None => Ok(returned),
    });
    let outcome = outcome.and_then(|returned| {
        let limit = engine.settings.limits.payload_bytes_max;
        let what = || format!("what step `{}` returned", call.step());
        let output = returned.output.map(|output| payload::storable(output, limit, what)).transpose();
        let output = output.map_err(|error| Failed::Error(error.into()))?;
        let what = || format!("the message with which step `{}` continues as new", call.step());
        let as_new = returned.as_new.map(|NextExecution { message, payload }| {
            let payload = payload::storable(payload, limit, what)?;
            Ok(NextExecution { message, payload })
        });
        let as_new = as_new.transpose().map_err(|error: RuntimeError| Failed::Error(error.into()))?;
        Ok(Returned { output, emissions, replies, wait, signals, as_new, ..returned })
    });
    let rehearsed = |returned| {
        injected_failure(engine, execution, call).map_or(Ok(returned), |it| Err(Failed::Error(it)))
    };
    let outcome = outcome.and_then(rehearsed);
    UserCodeEnd { outcome, opened, context, has_begun }
}

/// Warns of values in a failure that the code which gets it cannot find, once for each failure code.
fn warn_of_unread_values(engine: &Engine, execution: &Execution, step: &str, failure: &Failure) {
    // A panic in a function of the type: whether it reads the value is unknown.
    let unread = panic_boundary::run(&execution.run.source, || failure.unread_types().collect::<Vec<_>>());
    for coded in unread.unwrap_or_default() {
        if lock(&engine.unread).insert(coded.code()) {
            telemetry::failure_unread(execution.at(step), coded.code(), coded.type_name());
        }
    }
}

fn timed_out(execution: &Execution, call: &Call<'_>, limit: Duration) -> Failure {
    let text = format!("step `{}` took longer than its limit of {limit:?}", call.step());
    Failure::new("StepTimeout", text, &execution.run.source)
}

/// The reason for which a step that succeeded fails nevertheless.
pub(super) fn injected_failure(engine: &Engine, execution: &Execution, call: &Call<'_>) -> Option<Error> {
    let rehearsal = engine.settings.rehearsal.as_ref()?;
    let (saga, source) = (&execution.saga.definition.saga, &execution.run.source);
    let Action::Invoke { iteration, .. } = call.action() else {
        return None;
    };
    rehearsal.fail_after_step(saga, execution.key.id, call.step(), *iteration, source).map(Error::failure)
}

/// The place of the call, as recorded by its scope.
fn call_site<'a>(execution: &'a Execution, call: &'a Call<'_>) -> CallSite<'a> {
    let (iteration, handler_iteration) = match call.action() {
        Action::Invoke { iteration, .. } | Action::Compensate { iteration, .. } => (*iteration, None),
        Action::HandleChildFailure { iteration, handler_iteration, .. } => {
            (*iteration, Some(*handler_iteration))
        }
    };
    let outputs = match call.action() {
        Action::Compensate { outputs, .. } => outputs,
        Action::Invoke { .. } | Action::HandleChildFailure { .. } => &execution.run.outputs,
    };
    let steps = &execution.saga.definition.steps;
    let is_at_most_once = matches!(
        call.action(),
        Action::Invoke { step, .. } if steps[*step].delivery != Delivery::AtLeastOnce
    );
    CallSite {
        key: execution.key,
        flags: execution.flags,
        run: &execution.run,
        definition: &execution.saga.definition,
        saga: &execution.saga,
        step: call.step(),
        position: call.action().step(),
        iteration,
        handler_iteration,
        attempt: execution.attempt(),
        needs_fresh_session: execution.attempt() > 0 || is_at_most_once,
        outputs,
        cleanup: false,
    }
}

async fn invoke(
    execution: &Execution,
    call: &Call<'_>,
    scope: &mut Scope<'_>,
    message: &(dyn Any + Send + Sync),
) -> Result<Returned, Error> {
    let handler = &execution.saga.handler;
    let begin = |step: &usize, code| {
        let sender = execution.sender().filter(|_| matches!(call.action(), Action::Invoke { .. }));
        let span = execution.span.step(execution.at(call.step()), code, sender);
        let timer = StepTimer::begin(execution.timed(*step), code, &span);
        (span, timer)
    };
    // The handler is called in the `async` blocks, so that the spans contain all of the user code.
    match call.action() {
        Action::Invoke { step, .. } => {
            let kind = execution.saga.definition.steps[*step].kind;
            let code = match kind {
                StepKind::Finally => Code::Finally,
                StepKind::Code | StepKind::Wait | StepKind::Decide => Code::Step,
            };
            let (span, timer) = begin(step, code);
            let end = span.around(execute(&**handler, kind, *step, scope, message));
            let end = end.map(|result| timer.result(result)).await?;
            let of = StepName { saga: &execution.saga.definition.saga, step: call.step() };
            let output = end.output.transpose().map_err(|why| Unstorable::output(of, why))?;
            let as_new = end.as_new.transpose().map_err(|why| Unstorable::as_new(of, why))?;
            let as_new = as_new.map(|payload| NextExecution { message: ids::now_v7(), payload });
            Ok(Returned { next: Some(end.next), output, as_new, ..Returned::nothing() })
        }
        Action::Compensate { step, cause, finally, .. } => {
            if execution.saga.definition.steps[*step].compensated {
                let undoing = async { handler.compensate(*step, scope, message, cause).await };
                let (span, timer) = begin(step, Code::Compensation);
                span.around(undoing).map(|result| timer.result(result)).await?;
            }
            if *finally {
                scope.cleans_up();
                let cleanup = async { handler.finally(*step, scope, message).await };
                let (span, timer) = begin(step, Code::Finally);
                span.around(cleanup).map(|result| timer.result(result)).await?;
            }
            Ok(Returned::nothing())
        }
        Action::HandleChildFailure { step, failure, .. } => {
            let handling = async { handler.on_child_failure(*step, scope, message, failure).await };
            let (span, timer) = begin(step, Code::ChildFailure);
            let next = span.around(handling).map(|result| timer.result(result)).await?;
            Ok(Returned { next, ..Returned::nothing() })
        }
    }
}

/// Executes a step of any kind.
async fn execute(
    handler: &dyn Handler,
    kind: StepKind,
    step: usize,
    scope: &mut Scope<'_>,
    message: &(dyn Any + Send + Sync),
) -> Result<StepEnd, Error> {
    match kind {
        StepKind::Code => {
            let end = handler.invoke(step, scope, message).await?;
            if let Some(pause) = handler.sleep(step) {
                scope.sleep(pause).await?;
            }
            Ok(end)
        }
        StepKind::Wait => {
            match handler.awaits(step, scope, message).await? {
                Some(awaited) => scope.await_signal(awaited, handler.within(step)).await?,
                None => {
                    let due = handler.due(step, scope, message).await?;
                    scope.sleep(due).await?;
                }
            }
            Ok(StepEnd::CONTINUE)
        }
        StepKind::Finally => {
            handler.finally(step, scope, message).await?;
            Ok(StepEnd::CONTINUE)
        }
        StepKind::Decide => unreachable!("`decisions::decide` makes decisions"),
    }
}
