#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub use scoop_runtime::private as __private;

pub use scoop_core::{
    Context, ContextError, ContextKey, Deadline, DeadlineKind, Definition, Error, EventKind, Failure, Frame,
    Lineage, Message, Missed, NameError, Next, Recurrence, Result, Schedule, StepDefinition, StepKind, With,
};
pub use scoop_macros::{ContextKey, Message, saga, step, subscribes};
pub use scoop_runtime::{
    Attempted, Builder, CancelAnswer, Child, ChildOutcome, Emit, FailedCompensation, Handle, Intervention,
    Launch, ListedHandler, Listing, Mending, Outcome, Rebuild, RepairAnswer, Reply, Request, Retire, Retired,
    Retry, RollbackAnswer, RunEvent, RunInfo, RunState, RuntimeError, Saga, Scoop, Scope, SetupError, Status,
    Step, StepEnd, StopSignal, StuckRun, Tree, When, embedded,
};

/// What a program with sagas imports.
///
/// ```
/// use scoop::prelude::*;
/// ```
pub mod prelude {
    pub use serde::{Deserialize, Serialize};

    pub use crate::{
        ContextKey, Error, Failure, Message, Next, Outcome, Result, Saga, Scoop, Scope, With, saga, step,
        subscribes,
    };
}
