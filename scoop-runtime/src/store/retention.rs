//! What the deletion of finished hierarchies takes and returns.

use std::time::Duration;

use uuid::Uuid;

/// The least age at which anything is deleted. Younger rows may still decide whether a repeated request is a repetition.
pub(crate) const AGE_MIN: Duration = Duration::from_secs(60 * 60);

/// Hierarchies that may be old enough to be deleted.
#[derive(Debug, Default)]
pub(crate) struct PrunePage {
    pub(crate) roots: Vec<Uuid>,
    /// Where the next page begins; `None` at the end.
    pub(crate) next: Option<Uuid>,
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
    /// An event is too young.
    Recent,
    /// A rollback failed.
    Failed,
    /// A run has not ended, or has not begun.
    Unfinished,
    /// A join, or an unfinished hierarchy, still needs its record.
    Needed,
    /// Another transaction holds a lock.
    Busy,
    /// It has no record (any more).
    Absent,
}

/// The result for one hierarchy, with the number of deleted rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PruneResult {
    pub(crate) verdict: PruneVerdict,
    pub(crate) messages: u64,
    pub(crate) events: u64,
}

impl PruneResult {
    /// Nothing was deleted.
    #[cfg(feature = "in-memory")]
    pub(crate) fn kept(verdict: PruneVerdict) -> Self {
        Self { verdict, messages: 0, events: 0 }
    }
}
