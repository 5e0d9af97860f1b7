//! What a saga does where its code says nothing.

use std::future::ready;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use scoop_core::{Error, Failure, Next, Result};

use crate::saga::scope::Awaited;

/// The future of a function of a saga.
pub type Boxed<'a, T> = BoxFuture<'a, Result<T>>;

/// The result of an unhandled child failure, which becomes the failure of the step.
pub fn unhandled(failure: &Failure) -> Boxed<'_, Option<Next>> {
    Box::pin(async { Err(Error::failure(failure.clone())) })
}

/// The future of a step that has no such function.
pub fn nothing<'a>() -> Boxed<'a, ()> {
    Box::pin(ready(Ok(())))
}

/// The due time of a step that waits for none.
pub fn always_due<'a>() -> Boxed<'a, SystemTime> {
    Box::pin(ready(Ok(SystemTime::UNIX_EPOCH)))
}

/// The signal of a step that awaits none.
pub fn awaits_nothing<'a>() -> Boxed<'a, Option<Awaited>> {
    Box::pin(ready(Ok(None)))
}
