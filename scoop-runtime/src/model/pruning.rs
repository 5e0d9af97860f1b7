//! What became of hierarchies that were to be deleted.

use serde::Serialize;
use uuid::Uuid;

/// What became of a hierarchy that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneVerdict {
    /// It was deleted.
    Deleted,
    /// A run ended too late, or it was cancelled or relaunched since.
    Recent,
    /// A rollback failed.
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
    /// There is no such hierarchy.
    Absent,
}

/// What became of a hierarchy, and what was deleted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PruneResult {
    /// What became of it.
    pub verdict: PruneVerdict,
    /// The number of its messages.
    pub messages: u64,
    /// The number of its events.
    pub events: u64,
}

impl PruneResult {
    /// Nothing was deleted.
    pub fn retained(verdict: PruneVerdict) -> Self {
        Self { verdict, messages: 0, events: 0 }
    }
}

/// The result of a prune (`operate().retention().prune`), or its progress. In a dry run nothing is deleted, and the
/// counts are of what would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pruned {
    /// The number of deleted hierarchies.
    pub hierarchies: u64,
    /// The number of their messages. Those that are events of an entity stay, and do not count.
    pub messages: u64,
    /// The number of their events.
    pub events: u64,
    /// The number of deleted signals.
    pub signals: u64,
    /// The number of deleted keys of launches that had outlived their hierarchies: see
    /// [`Retention::unique_keys`](crate::Retention::unique_keys).
    pub unique_keys: u64,
    /// The hierarchies with a run whose last event is older than the given age, and that are kept.
    #[serde(rename = "kept")]
    pub retained: RetainedHierarchies,
    /// Whether the limit was reached, so that there may be more hierarchies.
    pub more: bool,
}

/// The number of hierarchies that a prune (`operate().retention().prune`) kept, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RetainedHierarchies {
    /// Another run ended later.
    pub recent: u64,
    /// A run has not ended.
    pub unfinished: u64,
    /// A rollback failed, and no operator has settled it.
    pub failed: u64,
    /// A message waits to be joined; the hierarchy of a joined message is kept, which may have this one rolled back; or
    /// it was started by a [`Failed`](crate::Failed) about a hierarchy that is unfinished.
    pub needed: u64,
    /// Another transaction held a lock.
    pub busy: u64,
    /// The database refuses its deletion, for example because of a foreign key of a table of yours. The event
    /// [`undeletable`](https://docs.rs/crate/scoop-saga/latest/source/docs/reference/telemetry.md) has the first error. In a
    /// dry run, these are the `operate().retention().undeletable` ones: the last attempt of a program failed,
    /// and a call that deletes tries them again.
    pub refused: u64,
}

/// Deletions that the database refuses.
#[derive(Debug, Default)]
pub struct RefusedDeletions {
    /// The number of these hierarchies.
    pub count: usize,
    /// The first of them.
    pub(crate) first: Uuid,
    pub(crate) topic: Option<String>,
    pub(crate) error: String,
}

impl RefusedDeletions {
    /// Adds one, with the error of the database.
    pub fn add(&mut self, root: Uuid, topic: Option<String>, error: String) {
        if self.count == 0 {
            (self.first, self.topic, self.error) = (root, topic, error);
        }
        self.count += 1;
    }
}

impl Pruned {
    /// Whether nothing was deleted.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.hierarchies + self.signals + self.unique_keys == 0
    }

    /// Counts what became of a hierarchy.
    #[doc(hidden)]
    pub fn add(&mut self, result: PruneResult) {
        let count = match result.verdict {
            PruneVerdict::Deleted => &mut self.hierarchies,
            PruneVerdict::Recent => &mut self.retained.recent,
            PruneVerdict::Unfinished => &mut self.retained.unfinished,
            PruneVerdict::Failed => &mut self.retained.failed,
            PruneVerdict::Needed => &mut self.retained.needed,
            PruneVerdict::Busy | PruneVerdict::Unarchived => &mut self.retained.busy,
            PruneVerdict::Refused => &mut self.retained.refused,
            // Another call has deleted it.
            PruneVerdict::Absent => return,
        };
        *count += 1;
        self.messages += result.messages;
        self.events += result.events;
    }
}
