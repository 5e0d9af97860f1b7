//! Asks a command whether its caller may send it, before any other code of it.

use std::any::Any;

use scoop_core::{Action, Call, Caller, Error, Failure, Unauthorized};

use crate::engine::execution::Execution;
use crate::util::panic_boundary;

/// The failure of a command that refuses its caller. None for other moves, and for a caller that may send it.
///
/// Neither locks nor connections are held meanwhile.
pub(in crate::engine) fn unauthorized(
    execution: &Execution,
    call: &Call<'_>,
    message: &(dyn Any + Send + Sync),
) -> Option<Failure> {
    let Action::Invoke { step: 0, .. } = call.action() else { return None };
    let authorize = execution.saga.handler.decisions()?.authorize?;
    let (source, command) = (&execution.run.source, &execution.saga.definition.saga);
    let (caller, why) = match execution.run.context.get::<Caller>() {
        Ok(caller) => {
            let caller = caller.unwrap_or_default();
            let refused = panic_boundary::run(source, || authorize(message, &caller));
            match refused.map_err(panic_boundary::named(format!("`authorize` of saga `{command}`"))) {
                Ok(Ok(())) => return None,
                Ok(Err(error)) => (caller, failure_of(error, command, source)),
                Err(panic) => return Some(panic),
            }
        }
        Err(unreadable) => (Caller::default(), Ok(Failure::new("Caller", unreadable.to_string(), source))),
    };
    Some(why.map_or_else(|panic| panic, |why| Unauthorized::to_failure(command, &caller, why, source)))
}

/// The error as a failure; or the panic of a function of its type.
fn failure_of(error: Error, command: &str, source: &str) -> Result<Failure, Failure> {
    let named = |function: &str| {
        panic_boundary::named(format!("{function} of the error of `authorize` of saga `{command}`"))
    };
    let failure =
        panic_boundary::run(source, || error.to_failure(source)).map_err(named("`Display` or `source`"));
    // In a call of its own: a panic in this during the unwinding of another one could not be caught.
    let dropped = panic_boundary::discard(source, error).map_err(named("`Drop`"));
    dropped.and(failure)
}
