//! Sagas as annotated async functions, on the Postgres you already run.

pub use scoop_core::{Definition, Error, Failure, Frame, Message, Next, Result};
pub use scoop_macros::{Message, saga, step, subscribes};
pub use scoop_runtime::{Saga, Scope, Step};

/// What a program with sagas imports.
pub mod prelude {
    pub use crate::{Error, Failure, Message, Next, Result, Saga, Scope, saga, step, subscribes};
    pub use serde::{Deserialize, Serialize};
}

#[doc(hidden)]
pub use scoop_runtime::private as __private;
