#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub use scoop_runtime::private as __private;

pub use scoop_core::{
    Context, ContextError, ContextKey, Definition, Error, EventKind, Failure, Frame, Lineage, Message,
    Missed, NameError, Next, Overlap, Recurrence, Result, Schedule, StepDefinition, StepKind, With,
};
pub use scoop_macros::{Message, saga, step, subscribes};
pub use scoop_runtime::{
    Attempted, Builder, Emit, Handle, Launch, Outcome, Retry, RunEvent, RunInfo, RunState, RuntimeError,
    Saga, Scoop, Scope, SetupError, Status, Step, StepEnd, Tick, Tree, embedded,
};

/// What a program with sagas imports.
///
/// ```
/// use scoop::prelude::*;
/// ```
pub mod prelude {
    pub use serde::{Deserialize, Serialize};

    pub use crate::{
        Error, Failure, Message, Next, Outcome, Result, Saga, Scoop, Scope, Tick, saga, step, subscribes,
    };
}
