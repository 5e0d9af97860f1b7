//! The boundary of user code: a panic in it, or in the drop of its values, is its failure and gets no further.
//!
//! All calls of user code go through [`call`] or [`run`], and all drops of its values through
//! [`discard`] or [`DropGuarded`]. What cannot be caught ends the process: a panic in a drop during the unwinding of another,
//! and any panic in a program that is built with `panic = "abort"`.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use futures_util::FutureExt;
use scoop_core::{Error, Failure, Frame};

thread_local! {
    /// The place of the last panic of this thread. A panic and its catching happen in one poll of a future,
    /// hence in one thread.
    static LOCATION: Cell<Option<Frame>> = const { Cell::new(None) };
}

/// Installs a panic hook that records the place of each panic: the payload that is caught does not have it. The former
/// hook is called as before.
pub(crate) fn record_locations() {
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

/// User code that was stopped: why, and the panic of its drop.
pub(crate) struct Stopped<W> {
    pub(crate) why: W,
    pub(crate) panic: Option<Failure>,
}

/// The result of user code, or its panic as an error of that source. The code is dropped when `stop` says so.
pub(crate) async fn call<T, W>(
    source: &str,
    stop: impl Future<Output = W>,
    code: impl Future<Output = Result<T, Error>>,
) -> Result<Result<T, Error>, Stopped<W>> {
    // All unfinished work of the code is in its scope, which is dropped with the step.
    let mut code = Box::pin(AssertUnwindSafe(code).catch_unwind());
    let ended = tokio::select! {
        biased;
        outcome = code.as_mut() => Ok(outcome),
        why = stop => Err(why),
    };
    match ended {
        Ok(outcome) => Ok(outcome.unwrap_or_else(|payload| Err(Error::failure(failure_of(payload, source))))),
        Err(why) => Err(Stopped { why, panic: discard(source, code).err() }),
    }
}

/// The result of user code that is not a future, or its panic as a failure of that source.
pub fn run<T>(source: &str, code: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| failure_of(payload, source))
}

/// Drops a value of user code.
pub(crate) fn discard<T>(source: &str, value: T) -> Result<(), Failure> {
    run(source, || drop(value))
}

/// Names the code that panicked in the failure that stands for its panic.
pub(crate) fn named(code: impl Display) -> impl FnOnce(Failure) -> Failure {
    move |panic| Failure { message: format!("panic in {code}: {}", panic.message), ..panic }
}

/// A value of user code that is dropped when no failure can follow any more: a panic is caught and ignored.
pub struct DropGuarded<T: ?Sized = dyn Any + Send + Sync>(Option<Box<T>>);

impl<T: ?Sized> DropGuarded<T> {
    /// Guards a value.
    pub fn new(value: Box<T>) -> Self {
        Self(Some(value))
    }

    /// The value.
    pub fn get(&self) -> &T {
        self.0.as_deref().expect("it is taken out at its end only")
    }

    /// The value, to change it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().expect("it is taken out at its end only")
    }

    /// The value, which the caller has to drop with [`discard`], or within [`run`].
    pub(crate) fn take(mut self) -> Box<T> {
        self.0.take().expect("it is taken out at its end only")
    }
}

impl<T: ?Sized> Drop for DropGuarded<T> {
    fn drop(&mut self) {
        // The panic hook has reported it.
        let _ = discard("", self.0.take());
    }
}

fn failure_of(payload: Box<dyn Any + Send>, source: &str) -> Failure {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let mut failure =
        Failure::new("Panic", text.as_deref().unwrap_or("panicked with a value that is not a text"), source);
    failure.stack_trace.extend(LOCATION.take());
    // The drop of a payload may panic with another payload, and so on without end: the second one is leaked.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
    failure
}
