#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub use scoop_runtime::private as __private;

pub use scoop_core::{
    Applies, BadTraceparent, Caller, Context, ContextError, ContextKey, ContinueAsNew, Deadline,
    DeadlineKind, Decision, Definition, Delivery, Entity, EntityKey, Error, EventKind, Failure, FailureCode,
    FindField, FindKind, Frame, FromError, HasReply, Interrupted, JoinIncomplete, Lineage, Message, Missed,
    NameError, Next, Overlap, Priority, Recurrence, Rejection, Result, RetentionTimes, Schedule, Signal,
    SignalKey, StepDefinition, StepKind, Stored, TraceContext, Traced, Unauthorized, With, wait,
    wait_strategy,
};
pub use scoop_macros::{
    ContextKey, FailureCode, Message, Signal, command, entity, saga, step, subscribes, trace,
};
#[cfg(feature = "operate")]
pub use scoop_operate as operate;
#[cfg(feature = "opentelemetry")]
pub use scoop_runtime::SampledTraces;
#[cfg(feature = "embedded")]
pub use scoop_runtime::embedded;
#[cfg(feature = "simulation")]
pub use scoop_runtime::simulation;
#[cfg(feature = "testing")]
pub use scoop_runtime::testing;
pub use scoop_runtime::{
    Builder, Child, ChildOutcome, Command, Decider, Failed, FailedOutcome, Handle, HandlerLimits,
    HierarchyId, IdKind, IdObject, Limit, Limits, Outcome, Rate, Reply, Retry, RetryTarget, RollbackFailure,
    RunId, RunPhase, RuntimeError, Saga, Scoop, Scope, Status, Step, StepEnd, StopSignal, Tick,
};
#[cfg(feature = "in-memory")]
pub use scoop_runtime::{InMemory, LoggedEvent, RowState, WorkingRun};

/// The report of a hierarchy, as [`Handle::tree`] reads it.
pub mod tree {
    pub use scoop_runtime::{
        Bar, BarKind, CancellationRequest, ReadTree, RunEvent, RunInfo, RunState, Tree, UnhandledMessage,
    };
}

/// Pauses of sagas, topics or everything: `operate().pauses().pause`.
pub mod pauses {
    #[cfg(feature = "operate")]
    pub use scoop_operate::{Drained, Paused, Resume, SetPause};
    pub use scoop_runtime::{IntoPauseTarget, Pause, PauseTarget};
}

/// For how long finished hierarchies are kept, and what gets them before: [`Retention`](retention::Retention).
pub mod retention {
    #[cfg(feature = "operate")]
    pub use scoop_operate::Prune;
    pub use scoop_runtime::{ArchiveBatch, Pruned, RetainedHierarchies, Retention};
}

/// Requests of operators, and their answers.
pub mod requests {
    #[cfg(feature = "operate")]
    pub use scoop_operate::{Redeliver, Redelivered, Relaunch, Retire, Retired};
    pub use scoop_runtime::{
        CancelAnswer, Intervention, RelaunchAnswer, RepairAnswer, Request, RollbackAnswer, RunRequest,
        SignalAnswer,
    };
}

/// States and events of entities, and the results of their commands.
pub mod entities {
    #[cfg(feature = "operate")]
    pub use scoop_operate::{EntityNotRebuilt, RebuildEntities, RebuiltEntities};
    pub use scoop_runtime::{CommandHandle, CommandState, EntityEvent, EntityEvents, EntityState, SqlEntity};
}

/// Launches and signals about to be made, and their options.
pub mod launch {
    pub use scoop_runtime::{Emit, Launch, LaunchAll, LaunchUntyped, SendSignal, UniqueLaunch, When};
}

/// Errors besides [`RuntimeError`].
pub mod errors {
    #[cfg(feature = "operate")]
    pub use scoop_operate::OperateError;
    pub use scoop_runtime::{NoResult, RunningStep, SetupError};
}

/// Whether a program works: [`Scoop::health`].
pub mod health {
    pub use scoop_runtime::{CheckHealth, EngineState, Health};
}

/// Making the tables without a program.
pub mod migration {
    pub use scoop_runtime::{Migrate, migrate, migration_files};
}

#[cfg(doctest)]
mod guide;

/// The usual imports of a program with sagas.
///
/// ```
/// use scoop::prelude::*;
/// ```
pub mod prelude {
    #[cfg(feature = "operate")]
    pub use scoop_operate::OperateExt as _;
    pub use serde::{Deserialize, Serialize};

    pub use crate::{
        ContextKey, ContinueAsNew, Decider, Decision, Error, Failed, Failure, FailureCode, HierarchyId,
        Message, Next, Outcome, Result, Saga, Scoop, Scope, Signal, Tick, Traced, With, command, entity,
        saga, step, subscribes,
    };
}
