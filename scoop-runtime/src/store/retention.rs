//! What the deletion of finished hierarchies takes and returns.
//!
//! The database decides what is due (`scoop.retention_next`) and whether it may be deleted (`scoop.prune`); the engine
//! decides when, and how fast.

use std::time::Duration;

use uuid::Uuid;

use super::PostgresStore;
use crate::model::pruning::Pruned;
use crate::model::retention::Retention;

/// The number of hierarchies that the first transaction deletes, and the most that any does.
const BATCH_FIRST: usize = 16;
const BATCH_MAX: usize = 256;

/// The time that a transaction should take.
const BATCH_TIME: Duration = Duration::from_millis(50);

/// How many hierarchies the next transaction deletes.
#[derive(Clone, Copy, Debug)]
pub struct PruneBatch(usize);

impl PruneBatch {
    /// Its size.
    pub fn size(self) -> usize {
        self.0
    }

    /// Learns that a transaction with this many hierarchies took so long.
    pub fn record(&mut self, time: Duration, size: usize) {
        self.0 = match time {
            time if time > BATCH_TIME => (size / 2).max(1),
            time if time < BATCH_TIME / 2 => (self.0 * 2).min(BATCH_MAX),
            _ => self.0,
        };
    }
}

impl PruneBatch {
    /// Learns that one of the hierarchies could not be archived or deleted: the next ones are tried one by one.
    pub fn failed(&mut self) {
        self.0 = 1;
    }
}

impl Default for PruneBatch {
    fn default() -> Self {
        Self(BATCH_FIRST)
    }
}

/// Hierarchies that may be due, for the automatic deletion.
#[derive(Clone, Debug)]
pub(crate) struct DueBatch {
    pub(crate) roots: Vec<Uuid>,
    pub(crate) has_more: bool,
    /// For how long the oldest of them has been due.
    pub(crate) behind: Duration,
}

/// The decision about due hierarchies.
#[derive(Clone, Debug)]
pub(crate) struct DueSettlement {
    pub(crate) due: DueBatch,
    /// The hierarchies that may be deleted; `None` if the program has no archive.
    pub(crate) archived: Option<Vec<Uuid>>,
    /// The pause before the next attempt with one that could not be archived.
    pub(crate) retry_after: Duration,
}

/// Which times count for a hierarchy.
#[derive(Clone, Copy, Debug)]
pub enum PruneTimes {
    /// Those of runs that ended before this time.
    Age(Duration),
    /// The times of its topic; these if it has none.
    ByTopic(Retention),
}

/// Whether hierarchies are deleted, or only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneMode {
    /// They are deleted.
    Delete,
    /// They are counted.
    Count,
}

/// The maximum number of signals, or of unique keys, deleted in one transaction.
pub const ROWS_MAX: u32 = 1_000;

/// Rows that are deleted apart from hierarchies.
#[derive(Clone, Copy, Debug)]
pub enum Expired {
    /// Signals that have reached no run since this age.
    Signals(Duration),
    /// The unique keys of deleted hierarchies.
    UniqueKeys,
}

impl Expired {
    /// Deletes a batch of them, and returns its size; or counts all.
    pub async fn prune(self, tables: &PostgresStore, mode: PruneMode) -> sqlx::Result<u64> {
        match self {
            Self::Signals(age) => tables.prune_signals(age, ROWS_MAX, mode).await,
            Self::UniqueKeys => tables.prune_keys(ROWS_MAX, mode).await,
        }
    }

    /// Adds a batch to the counts.
    pub fn count(self, pruned: &mut Pruned, more: u64) {
        match self {
            Self::Signals(_) => pruned.signals += more,
            Self::UniqueKeys => pruned.unique_keys += more,
        }
    }
}
