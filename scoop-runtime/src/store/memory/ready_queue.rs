//! The ready runs of one queue, by their priority.

use std::collections::{BTreeMap, BTreeSet};

use scoop_core::Priority;
use time::OffsetDateTime;

use crate::store::memory::row::RowKey;

/// A ready run: the time from which it is ready, its order among those of that time, and its key.
pub(super) type ReadyRun = (OffsetDateTime, u64, RowKey);

/// The ready runs of one queue. Those of each priority are in the order in which they became ready.
#[derive(Default)]
pub(super) struct ReadyQueue(BTreeMap<Priority, BTreeSet<ReadyRun>>);

impl ReadyQueue {
    pub(super) fn insert(&mut self, priority: Priority, run: ReadyRun) {
        self.0.entry(priority).or_default().insert(run);
    }

    pub(super) fn remove(&mut self, priority: Priority, run: &ReadyRun) {
        if let Some(level) = self.0.get_mut(&priority) {
            level.remove(run);
            if level.is_empty() {
                self.0.remove(&priority);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn level(&self, priority: Priority) -> impl Iterator<Item = &ReadyRun> {
        self.0.get(&priority).into_iter().flatten()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Priority, &ReadyRun)> {
        self.0.iter().flat_map(|(priority, level)| level.iter().map(|run| (*priority, run)))
    }
}
