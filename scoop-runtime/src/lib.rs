//! The engine of Scoop: runs sagas on PostgreSQL, or in memory.
//!
//! Features, all off by default: `embedded` (a private PostgreSQL), `download` (its programs, where none are installed),
//! `in-memory` (no server), `cron` (schedules by cron expressions), `metrics` (through the facade
//! `metrics`), `opentelemetry` (traces across messages and processes), `testing` (rehearsals), `simulation` (faults of
//! a simulated database in memory; includes `in-memory`).
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

// For tests: injected failures, simulations.
#[cfg(feature = "testing")]
mod rehearsal;
#[cfg(not(feature = "testing"))]
#[path = "rehearsal/absent.rs"]
mod rehearsal;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg(feature = "testing")]
pub mod testing;

mod util;

/// Times, durations and trees as texts, for the command line and the web page.
#[doc(hidden)]
pub mod shown {
    pub use crate::model::format::{humane, utc};
    pub use crate::tree::{TreeHints, TreeText};
}

#[cfg(feature = "in-memory")]
pub use api::InMemory;
pub use api::{
    Builder, CheckHealth, CommandHandle, CommandState, EntityEvent, EntityEvents, EntityState, Handle,
    Health, Launch, LaunchAll, LaunchUntyped, Migrate, Outcome, ReadTree, Request, Scoop, SendSignal, Status,
    migrate, migration_files,
};
pub use engine::EngineState;
pub use error::{FailedStep, NoResult, RuntimeError, SetupError};
pub use model::answers::RollbackFailure;
pub use model::answers::{CancelAnswer, RelaunchAnswer, RollbackAnswer, SignalAnswer};
pub use model::children::{Child, ChildOutcome};
pub use model::failed::{Failed, FailedOutcome};
pub use model::handlers::RegisteredHandler;
pub use model::limits::{HandlerLimits, Limit, Rate};
pub use model::name::{HierarchyId, IdKind, IdObject, RunId};
pub use model::pause::{IntoPauseTarget, Pause, PauseTarget};
pub use model::pruning::{Pruned, RetainedHierarchies};
pub use model::retention::Retention;
pub use model::run::RowState;
pub use model::run::{RunPhase, RunRequest, WaitKind};
pub use model::running_step::RunningStep;
pub use model::subscribed::Subscribed;
pub use model::tick::Tick;
pub use repair::{Intervention, RepairAnswer};
pub use saga::command::{Command, Decider};
#[doc(hidden)]
pub use saga::private;
pub use saga::replies::Reply;
pub use saga::retry::Retry;
pub use saga::scope::{Emit, Scope, UniqueLaunch};
pub use saga::sql_entity::SqlEntity;
pub use saga::stop_signal::StopSignal;
pub use saga::{RetryTarget, Saga, Step, StepEnd};
#[cfg(feature = "embedded")]
pub use scoop_embedded as embedded;
pub use settings::Limits;
pub use store::{ArchiveBatch, QueueLength};
#[cfg(feature = "in-memory")]
pub use store::{LoggedEvent, WorkingRun};
#[cfg(feature = "opentelemetry")]
pub use telemetry::SampledTraces;
pub use tree::{Bar, BarKind, CancellationRequest, RunEvent, RunInfo, RunState, Tree, UnhandledMessage};
#[doc(hidden)]
pub use util::database_url::connect_options;
pub use util::when::When;
