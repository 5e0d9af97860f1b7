#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub use scoop_runtime::private as __private;

pub use scoop_core::{
    Anew, Applies, BadTraceparent, Caller, Context, ContextError, ContextKey, Deadline, DeadlineKind,
    Decision, Definition, Delivery, Entity, EntityKey, Error, EventKind, Failure, FailureCode, Frame,
    FromError, HasReply, Here, Interrupted, JoinIncomplete, KeepTimes, Lineage, Message, Missed, NameError,
    Next, Overlap, Priority, Recurrence, Rejection, Result, Schedule, Signal, SignalKey, StepDefinition,
    StepKind, Stored, TraceContext, Unauthorized, With, wait, wait_strategy,
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
    ArchiveBatch, BadCursor, Bar, BarKind, Builder, CancelAnswer, CancellationRequest, Child, ChildOutcome,
    Command, CommandHandle, CommandState, Decider, Drained, Emit, EndedPause, EngineState, EntityEvent,
    EntityEvents, EntityNotRebuilt, EntityState, Failed, FailedCompensation, FailedOutcome, FailedStep,
    Handle, HandlerLimits, Health, HierarchyId, Intervention, IntoPauseTarget, Keep, KeptHierarchies, Launch,
    LaunchAll, LaunchUntyped, Limit, Limits, ListCursor, ListRequest, Migrate, Named, NoResult, Outcome,
    Pause, PauseTarget, Paused, Prune, Pruned, Rate, ReadTree, RebuildEntities, RebuiltEntities, Redeliver,
    Redelivered, RelaunchAnswer, RepairAnswer, Reply, Request, Resume, Retire, Retired, Retry, RetryTarget,
    RollbackAnswer, RollbackFailure, RunCursor, RunEvent, RunId, RunInfo, RunPhase, RunRequest, RunState,
    RunningStep, RuntimeError, Saga, Scoop, Scope, SendSignal, SetPause, SetupError, SignalAnswer, SqlEntity,
    Status, Step, StepEnd, StopSignal, StuckRun, Subscribed, Tick, Tree, Undeletable, UnhandledMessage,
    UniqueLaunch, WaitingMember, Wanted, When, migrate, migration_files,
};
#[cfg(feature = "in-memory")]
pub use scoop_runtime::{InMemory, LoggedEvent, RowState, WorkingRun};

pub mod guide;

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
        Anew, ContextKey, Decider, Decision, Error, Failed, Failure, FailureCode, Here, HierarchyId, Message,
        Next, Outcome, Result, Saga, Scoop, Scope, Signal, Tick, With, command, entity, saga, step,
        subscribes,
    };
}
