//! The store of runs and their history: PostgreSQL, or the memory of one program. The only module that speaks SQL.

mod alone;
mod bulk;
mod claim;
mod client;
mod definitions;
mod either;
mod engine;
mod free;
mod history;
mod launching;
mod memory;
mod migrate;
mod name;
mod plain;
#[cfg(test)]
mod plans;
mod postgres;
mod progress;
mod reach;
mod rebuild;
mod recorded;
mod redelivery;
mod repair;
mod requests;
mod required;
#[cfg(test)]
mod rounds;
mod rows;
mod schedule;
mod sessions;
mod settlement;
#[cfg(test)]
mod shapes;
mod sql;
mod telling;
#[cfg(test)]
pub(crate) mod tests;
mod topology;
mod unhandled;

pub(crate) use bulk::{is_bulky, parts};
pub(crate) use client::{Claimer, HandlerOutcome, Launch, Launched, Standing, known_before};
pub(crate) use definitions::{Lanes, LivingWorker, PublishedDefinition, Refusing, Registered, SetAside};
pub(crate) use either::{Pairs, Store};
pub(crate) use engine::{Committed, Parent, Release};
pub(crate) use free::{Disowned, Reaped};
pub(crate) use history::{History, Wanted};
#[cfg(feature = "simulation")]
pub use memory::Link;
pub use memory::{LoggedEvent, WorkingRun};
pub(crate) use memory::{Memory, MemorySession};
pub(crate) use migrate::{files, migrate, unfit_tables};
pub(crate) use postgres::step_transactions::{Connections, MARKED, Opened, RolledBack, roll_back};
pub(crate) use progress::Progress;
pub(crate) use reach::{check, refusal};
pub(crate) use redelivery::Redelivery;
pub(crate) use repair::{Page, Remedied, Repaired};
pub(crate) use requests::{Asked, Target, Undone};
pub(crate) use rows::{
    Claimed, FailedPart, Key, Surroundings, Unclaimed, failure, lineage, no_failure, readable, time,
    time_if_any, timestamps,
};
pub(crate) use schedule::{Fired, Published, Taken, Ticked};
pub(crate) use sessions::{Access, Sessions};
pub(crate) use settlement::{Settled, Settlement, Shape};
pub(crate) use sql::{Schema, Statements};
pub(crate) use unhandled::Unhandled;

use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::clock::ServerClock;

/// The tables of one schema.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    sessions: Sessions,
    sql: Statements,
    clock: Arc<ServerClock>,
    /// Whether the role may write messages and runs itself, once that is known.
    writes: Arc<OnceCell<bool>>,
}

impl Tables {
    pub(crate) fn new(sessions: Sessions, schema: &Schema) -> Self {
        Self { sessions, sql: Statements::of(schema), clock: Arc::default(), writes: Arc::default() }
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }
}
