//! Rebuilds the working set from the protocol's tables, after it was damaged or lost.

mod comparison;
mod entity;
#[cfg(test)]
mod fuzz;
mod run_history;
#[cfg(test)]
mod tests;
mod working_set;

use uuid::Uuid;

use crate::HierarchyId;

pub use self::comparison::{
    ChangedField, FailedRollbackComparison, RebuildChange, RebuildComparison, RunDifference, UnmatchedFailure,
};
pub(crate) use self::entity::{EntityFold, Unfolded};
pub(crate) use self::run_history::{OperatorAction, RecordedEvent, RecordedExecution};
pub(crate) use self::working_set::{Rebuilt, SubscriptionPeriod, newest_outputs, rebuild};

/// The result of a [rebuild](crate::Scoop::rebuild_working_set) of the working set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildReport {
    /// The number of runs before the rebuild.
    pub before: u64,
    /// The number of runs after the rebuild.
    pub after: u64,
    /// The hierarchies that cannot be rebuilt. Their runs are unchanged.
    pub skipped: Vec<SkippedHierarchy>,
}

/// The progress of a [rebuild](crate::RebuildWorkingSet::on_progress).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildProgress {
    /// The number of hierarchies that are done.
    pub hierarchies: u64,
    /// The number of those that have to be read: all that are unfinished.
    pub total: u64,
}

/// A hierarchy that cannot be [rebuilt](crate::Scoop::rebuild_working_set): a record is damaged or unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedHierarchy {
    /// Its id.
    pub hierarchy: HierarchyId,
    /// The reason.
    pub reason: String,
}

pub(crate) fn root_of(row: &RecordedEvent) -> Uuid {
    row.lineage.root_id()
}
