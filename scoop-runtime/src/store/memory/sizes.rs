//! The sizes of the working set; those in bytes are 0.

use super::MemoryStore;
use crate::store::{SizeStorage, StoreSizes};

impl SizeStorage for MemoryStore {
    async fn sizes(&self) -> sqlx::Result<StoreSizes> {
        // No operation with faults: otherwise those of a simulation would depend on the metrics.
        Ok(self.at_once(|state| {
            let rows = state.hierarchies.values().map(|hierarchy| hierarchy.rows.len()).sum::<usize>();
            let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            let bounded = |count: usize| number(count.min(StoreSizes::COUNTED_MAX));
            StoreSizes {
                unfinished_runs: number(rows),
                stuck_runs: bounded(state.stuck.len()),
                failed_rollbacks: bounded(state.failed.len()),
                undeletable: bounded(state.undeletable().count()),
                ..StoreSizes::default()
            }
        }))
    }
}
