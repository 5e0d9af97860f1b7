//! A panic in a step is that step's failure, never the engine's.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use futures_util::FutureExt;
use scoop_core::{Error, Failure, Frame};

thread_local! {
    /// Where this thread panicked last. A panic and its catching happen in one poll of a future,
    /// hence in one thread.
    static LOCATION: Cell<Option<Frame>> = const { Cell::new(None) };
}

/// From now on it is known where a panic happened: the payload that is caught does not tell. The
/// hook that was there before is called as before.
pub(super) fn record_locations() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            LOCATION.set(info.location().map(|location| Frame {
                file_name: location.file().to_owned(),
                line_number: location.line().into(),
                class_name: None,
                function_name: None,
            }));
            previous(info);
        }));
    });
}

/// The output of the future, or its panic as an error of that source.
pub(super) async fn caught<T>(
    source: &str,
    code: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    // Whatever the code left half-done is in its scope, which is thrown away with the step.
    let outcome = AssertUnwindSafe(code).catch_unwind().await;
    outcome.unwrap_or_else(|payload| Err(Error::failure(failure_of(&*payload, source))))
}

/// The result of user code that is no future, or its panic as an error of that source.
pub(super) fn caught_or<T>(source: &str, code: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| failure_of(&*payload, source))
}

/// The failure that user code makes, or its panic as a failure of that source.
pub(super) fn caught_now(source: &str, code: impl FnOnce(&str) -> Failure) -> Failure {
    caught_or(source, || code(source)).unwrap_or_else(|panic| panic)
}

fn failure_of(payload: &(dyn Any + Send), source: &str) -> Failure {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let mut failure =
        Failure::new("Panic", text.as_deref().unwrap_or("panicked with a value that is not a text"), source);
    failure.stack_trace.extend(LOCATION.take());
    failure
}
