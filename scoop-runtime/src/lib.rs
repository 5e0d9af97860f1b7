//! The engine of Scoop: runs sagas on PostgreSQL, or in memory.
//!
//! Features, all off by default: `embedded` (a private PostgreSQL), `download` (its programs, where none are installed),
//! `in-memory` (no server), `cron` (schedules by cron expressions), `metrics` (through the facade
//! `metrics`), `opentelemetry` (traces across messages and processes), `testing` (rehearsals), `simulation` (faults and bugs
//! of a simulated database in memory; includes `in-memory`).
//!
//! Users depend on `scoop-saga`, which re-exports what they need and explains it.

// Public futures are boxed, unless they contain a type of the user: see docs/development/decisions/0025-boxed-futures.md.

// `api`: what users call. `saga`: types in the code that users write.
mod api;
mod saga;

// Execution of runs.
mod completion;
mod engine;
mod unhandled;

// Decisions without IO about repairs. The report of a hierarchy.
mod repair;
mod tree;

// Plain values that the layers share.
mod model;

// Runs and their history: PostgreSQL, or the memory of the program.
mod store;

#[doc(hidden)]
pub mod internal;

// Settings, errors, and everything that is logged.
mod error;
mod settings;
mod telemetry;

// For tests: injected failures and bugs, simulations.
mod bug;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(not(feature = "testing"))]
#[path = "testing/absent.rs"]
mod testing;

mod util;

/// Times, durations and trees as texts, for the command line and the web page.
#[doc(hidden)]
pub mod shown {
    pub use crate::tree::{TreeHints, TreeText};
    pub use crate::util::format::{humane, utc};
}

#[cfg(feature = "in-memory")]
pub use api::InMemory;
pub use api::{
    ArchiveBatch, Builder, CommandHandle, CommandState, EntityEvent, EntityEvents, EntityState, Handle,
    Health, Launch, LaunchAll, LaunchUntyped, Migrate, Outcome, ReadTree, Request, RollbackFailure, Scoop,
    SendSignal, Status, migrate, migration_files,
};
pub use engine::{EngineState, RunningStep, StopSignal};
pub use error::{FailedStep, NoResult, RuntimeError, SetupError};
pub use model::answers::{CancelAnswer, RelaunchAnswer, RollbackAnswer, SignalAnswer};
pub use model::retention::Retention;
pub use model::run::{RunPhase, RunRequest, WaitKind};
pub use repair::{Intervention, RepairAnswer};
pub use saga::children::{Child, ChildOutcome, Reply};
pub use saga::command::{Command, Decider};
pub use saga::failed::{Failed, FailedOutcome};
pub use saga::limits::{HandlerLimits, Limit, Rate};
#[doc(hidden)]
pub use saga::private;
pub use saga::retry::Retry;
pub use saga::scope::{Emit, Scope, UniqueLaunch};
pub use saga::sql_entity::SqlEntity;
pub use saga::tick::Tick;
pub use saga::{RetryTarget, Saga, Step, StepEnd};
#[cfg(feature = "embedded")]
pub use scoop_embedded as embedded;
pub use settings::Limits;
pub use store::{
    IntoPauseTarget, Pause, PauseTarget, Pruned, QueueLength, RegisteredHandler, RetainedHierarchies,
    RowState,
};
#[cfg(feature = "in-memory")]
pub use store::{LoggedEvent, WorkingRun};
#[cfg(feature = "opentelemetry")]
pub use telemetry::SampledTraces;
pub use tree::{Bar, BarKind, CancellationRequest, RunEvent, RunInfo, RunState, Tree, UnhandledMessage};
#[doc(hidden)]
pub use util::database_url::connect_options;
pub use util::name::{HierarchyId, IdKind, IdObject, RunId};
pub use util::subscribed::Subscribed;
pub use util::when::When;
