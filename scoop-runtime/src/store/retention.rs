//! What the deletion of finished hierarchies takes and returns.
//!
//! The database decides what is due (`scoop.retention_next`) and whether it may be deleted (`scoop.prune`); the engine
//! decides when, and how fast.

use std::time::Duration;

use uuid::Uuid;

use crate::model::retention::Retention;

/// The number of hierarchies that the first transaction deletes, and the most that any does.
const BATCH_FIRST: usize = 16;
const BATCH_MAX: usize = 256;

/// The time that a transaction should take.
const BATCH_TIME: Duration = Duration::from_millis(50);

/// How many hierarchies the next transaction deletes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PruneBatch(usize);

impl PruneBatch {
    pub(crate) fn size(self) -> usize {
        self.0
    }

    /// Learns that a transaction with this many hierarchies took so long.
    pub(crate) fn took(&mut self, time: Duration, size: usize) {
        self.0 = match time {
            time if time > BATCH_TIME => (size / 2).max(1),
            time if time < BATCH_TIME / 2 => (self.0 * 2).min(BATCH_MAX),
            _ => self.0,
        };
    }
}

impl PruneBatch {
    /// Learns that one of the hierarchies could not be archived: the next ones are tried one by one.
    pub(crate) fn failed(&mut self) {
        self.0 = 1;
    }
}

impl Default for PruneBatch {
    fn default() -> Self {
        Self(BATCH_FIRST)
    }
}

/// Hierarchies that may be old enough to be deleted.
#[derive(Debug, Default)]
pub(crate) struct PrunePage {
    pub(crate) roots: Vec<Uuid>,
    /// The hierarchies that could not be deleted the last time.
    pub(crate) put_off: Vec<Uuid>,
    /// The next page begins after this one; `None` at the end.
    pub(crate) next: Option<Uuid>,
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
pub(crate) enum PruneTimes {
    Age(Duration),
    /// The times of its topic; these if it has none.
    ByTopic(Retention),
}

/// Whether hierarchies are deleted, or only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PruneMode {
    Delete,
    Count,
}

/// What became of a hierarchy that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PruneVerdict {
    Deleted,
    /// A run ended too late, or it was cancelled or relaunched since.
    Recent,
    Failed,
    /// A run has not ended, or has not begun.
    Unfinished,
    /// A join, or an unfinished hierarchy, still needs its record.
    Needed,
    /// Another transaction holds a lock.
    Busy,
    /// It could not be archived.
    Unarchived,
    /// The database refused its deletion the last time.
    Refused,
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PruneResult {
    pub(crate) verdict: PruneVerdict,
    pub(crate) messages: u64,
    pub(crate) events: u64,
}

impl PruneResult {
    /// Nothing was deleted.
    pub(crate) fn kept(verdict: PruneVerdict) -> Self {
        Self { verdict, messages: 0, events: 0 }
    }
}
