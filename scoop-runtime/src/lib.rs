//! The engine of Scoop: runs sagas on PostgreSQL, or in memory.
//!
//! Users depend on `scoop-saga`, which re-exports what they need and explains it.

// Public futures are boxed, unless they contain a type of the user: see "Decisions" in ARCHITECTURE.md.

mod bug;
mod builder;
mod children;
mod client;
mod clock;
mod completion;
pub mod embedded;
mod engine;
mod error;
mod gather;
mod ids;
mod launch;
mod memory;
mod migrate;
mod name;
mod patience;
mod payload;
#[doc(hidden)]
pub mod private;
mod rebuild;
mod redelivery;
mod registry;
mod repair;
mod requests;
mod retry;
mod saga;
mod scoop;
mod scope;
mod settings;
mod shape;
mod shown;
#[cfg(feature = "simulation")]
pub mod simulation;
mod sleeper;
mod store;
mod sync;
mod telemetry;
pub mod testing;
mod tick;
mod timetable;
mod topology;
mod tree;
mod unhandled;
mod uninterrupted;

pub use builder::Builder;
pub use children::{Child, ChildOutcome, Reply};
pub use client::{Handle, Launch, LaunchAll, Outcome, RollbackFailure, Status};
pub use clock::When;
pub use engine::{RunningStep, StopSignal};
pub use error::{FailedStep, NoResult, RuntimeError, SetupError};
pub use memory::InMemory;
pub use migrate::{Migrate, migrate, migration_files};
pub use name::{HierarchyId, Named, RunId, Wanted};
pub use rebuild::{Rebuild, SkippedHierarchy};
pub use redelivery::{Redeliver, Redelivered};
pub use repair::{FailedCompensation, Intervention, Listed, Listing, Mending, RepairAnswer, StuckRun};
pub use requests::{CancelAnswer, Request, RollbackAnswer};
pub use retry::Retry;
pub use saga::{Attempted, Saga, Step, StepEnd};
pub use scoop::Scoop;
pub use scope::{Emit, Scope};
pub use store::{LoggedEvent, WorkingRun};
pub use tick::Tick;
pub use topology::{ListedHandler, Retire, Retired};
pub use tree::{CancellationRequest, ReadTree, RunEvent, RunInfo, RunState, Tree, UnhandledMessage};
pub use unhandled::Subscribed;
