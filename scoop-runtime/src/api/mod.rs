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
mod joins;
mod pauses;
mod prune;
mod rebuild_entities;
mod redelivery;
mod repairs;
mod subscriptions;

pub use archive::ArchiveBatch;
pub(crate) use archive::{Archive, ArchiveError};
pub use builder::Builder;
pub use command::{CommandHandle, CommandState, EntityState};
pub use entity_events::{EntityEvent, EntityEvents};
pub use handle::{Handle, Outcome, Status};
pub use health::Health;
#[cfg(feature = "in-memory")]
pub use in_memory::InMemory;
pub use launch::{Launch, LaunchAll, LaunchUntyped};
pub use migrate::{Migrate, migrate, migration_files};
pub use pauses::{Drained, Paused, Resume, SetPause};
pub(crate) use prune::{Expired, ROWS_MAX, RefusedDeletions};
pub use prune::{Prune, Pruned, RetainedHierarchies};
pub use read_tree::ReadTree;
pub use rebuild_entities::{EntityNotRebuilt, RebuildEntities, RebuiltEntities};
pub use redelivery::{Redeliver, Redelivered};
pub use requests::Request;
pub use scoop::Scoop;
pub use signal::SendSignal;
#[cfg(feature = "simulation")]
pub use simulated_process::Process;
pub use subscriptions::{Retire, Retired};

/// What operators ask of a program: the crate for operators has methods for these, with their documentation.
pub(crate) mod operations {
    pub use super::entity_events::entity_events;
    pub use super::find_by_key::find_topic_by_key;
    pub use super::handle::trigger_named;
    pub use super::joins::joined;
    pub use super::pauses::{drained, is_registered, pause, resume};
    pub use super::prune::prune;
    pub use super::rebuild_entities::rebuild_entities;
    pub use super::redelivery::redeliver;
    pub use super::repairs::{interventions, resolve, retry, skip};
    pub use super::requests::{relaunch, signal_run};
    pub use super::signal::signal_named;
    pub use super::subscriptions::{lacking_rights, register_handler, retire_handler};
}
