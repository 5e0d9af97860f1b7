//! The sizes of the working set; those in bytes are 0.

use super::MemoryStore;
use super::row::WorkingRow;
use super::state::State;
use crate::model::run::RowState;
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
                unbounded_waits: bounded(state.unbounded_waits()),
                ..StoreSizes::default()
            }
        }))
    }
}

impl State {
    /// The ready runs of retired handlers that no program executes, and no deadline ends.
    fn unbounded_waits(&self) -> usize {
        let has_end = |row: &WorkingRow| row.giving_up || row.give_up_at.is_some();
        let is_registered =
            |row: &WorkingRow| self.topology.iter().any(|entry| entry.is(&row.topic, &row.handler));
        let rows = self.hierarchies.values().flat_map(|hierarchy| hierarchy.rows.values());
        let ready = rows.filter(|row| row.state == RowState::Ready && !has_end(row) && !is_registered(row));
        ready.filter(|row| self.is_abandoned(&row.queue())).count()
    }
}
