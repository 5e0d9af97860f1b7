//! What users call: the handle of a running program, its launches and hierarchies, and the operations of operators.

// Start.
mod builder;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "in-memory")]
mod in_memory;
mod migrate;
mod scoop;
#[cfg(feature = "simulation")]
mod simulated_process;

// Launches, and the hierarchies that follow from them.
mod command;
mod entity_events;
mod find_by_key;
mod handle;
mod health;
mod launch;
mod read_tree;
mod requests;
mod signal;
mod signal_types;

// Operators.
mod archive;
pub(crate) mod operations;

pub use builder::Builder;
pub use command::{CommandHandle, CommandState, EntityState};
pub use entity_events::{EntityEvent, EntityEvents};
pub use handle::{Handle, Outcome, Status};
pub use health::{CheckHealth, Health};
#[cfg(feature = "in-memory")]
pub use in_memory::InMemory;
pub use launch::{Launch, LaunchAll, LaunchUntyped};
pub use migrate::{Migrate, migrate, migration_files};
pub use read_tree::ReadTree;
pub use requests::{Request, RequestInfo};
pub use scoop::Scoop;
pub use signal::SendSignal;
#[cfg(feature = "simulation")]
pub use simulated_process::Process;
