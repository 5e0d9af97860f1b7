//! Sagas as annotated async functions, on the Postgres you already run.

pub use scoop_core::{Definition, Error, EventKind, Failure, Frame, Lineage, Message, Next, Result};
pub use scoop_macros::{Message, saga, step, subscribes};
pub use scoop_runtime::{
    Builder, Emit, Handle, Launch, Outcome, RunEvent, RunInfo, RunState, RuntimeError, Saga, Scoop, Scope,
    SetupError, Status, Step, Tree, embedded,
};

/// What a program with sagas imports.
pub mod prelude {
    pub use crate::{
        Error, Failure, Message, Next, Outcome, Result, Saga, Scoop, Scope, saga, step, subscribes,
    };
    pub use serde::{Deserialize, Serialize};
}

#[doc(hidden)]
pub use scoop_runtime::private as __private;
