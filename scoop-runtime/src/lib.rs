//! The engine of Scoop: runs sagas on PostgreSQL, or in memory.
//!
//! Users depend on `scoop-saga`, which re-exports what they need and explains it.

// Public futures are boxed, unless they contain a type of the user: see "Decisions" in ARCHITECTURE.md.

// What users call, and what they write.
mod api;
mod saga;

// Execution of runs.
mod completion;
mod engine;
mod unhandled;

// Pure decisions, and the report of a hierarchy.
mod rebuild;
mod repair;
mod tree;

// Runs and their history: PostgreSQL, or the memory of the program.
mod store;

// Settings, errors, and everything that is logged.
mod error;
mod settings;
mod telemetry;

// For first steps and tests: a private PostgreSQL, injected failures, simulations.
mod bug;
pub mod embedded;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod testing;

mod util;

pub use api::{
    Builder, CancelAnswer, Handle, InMemory, Launch, LaunchAll, Listed, Listing, Migrate, Outcome, ReadTree,
    Redeliver, Redelivered, Request, Retire, Retired, RollbackAnswer, RollbackFailure, Scoop, Status,
    migrate, migration_files,
};
pub use engine::{RunningStep, StopSignal};
pub use error::{FailedStep, NoResult, RuntimeError, SetupError};
pub use rebuild::{Rebuild, SkippedHierarchy};
pub use repair::{FailedCompensation, Intervention, RepairAnswer, RepairStatus, StuckRun};
pub use saga::children::{Child, ChildOutcome, Reply};
#[doc(hidden)]
pub use saga::private;
pub use saga::retry::Retry;
pub use saga::scope::{Emit, Scope};
pub use saga::tick::Tick;
pub use saga::{Attempted, Saga, Step, StepEnd};
pub use store::{ListedHandler, LoggedEvent, WorkingRun};
pub use tree::{CancellationRequest, RunEvent, RunInfo, RunState, Tree, UnhandledMessage};
pub use util::name::{HierarchyId, Named, RunId, Wanted};
pub use util::subscribed::Subscribed;
pub use util::when::When;
