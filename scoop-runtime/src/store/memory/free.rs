//! Frees the runs that their owner does not execute: those of dead workers, and those that a worker has lost track of.

use std::time::Duration;

use uuid::Uuid;

use super::MemoryStore;
use super::state::State;
use crate::model::backoff::Backoff;
use crate::model::run::RowState;
use crate::store::memory::row::RowKey;
use crate::store::types::{ANSWER_LOST, UNKNOWN_MAX, UNKNOWN_TOO_OFTEN, WORKER_GONE};
use crate::store::{FreeStorage, Freed, Reaped, Reconciled};

impl FreeStorage for MemoryStore {
    async fn reconcile(
        &self,
        worker: Uuid,
        in_flight: impl Fn() -> Vec<Uuid>,
        backoff: Backoff,
    ) -> sqlx::Result<Reconciled> {
        self.run("disown", |state| {
            let in_flight = in_flight();
            let lost = state.owned_by(worker).into_iter().filter(|(_, id)| !in_flight.contains(id)).collect();
            Ok(Reconciled { freed: state.free(worker, lost, ANSWER_LOST, backoff), woken: state.sweep() })
        })
        .await
    }

    async fn reap(&self, worker: Uuid, backoff: Backoff) -> sqlx::Result<Reaped> {
        self.run("reap", |state| {
            let dead: Vec<_> = state.dead(worker).collect();
            let mut reaped = Reaped { workers: dead.len(), freed: Freed::default() };
            for worker in dead {
                let freed = state.delete_worker(worker, backoff);
                reaped.freed.runs += freed.runs;
                reaped.freed.stuck.extend(freed.stuck);
                reaped.freed.retired.extend(freed.retired);
            }
            if reaped.workers > 0 {
                state.sweep();
            }
            Ok(reaped)
        })
        .await
    }

    async fn deregister(&self, worker: Uuid, backoff: Backoff) -> sqlx::Result<Freed> {
        self.run("leave", |state| {
            let freed = state.delete_worker(worker, backoff);
            state.notify(worker);
            Ok(freed)
        })
        .await
    }
}

impl State {
    fn delete_worker(&mut self, worker: Uuid, backoff: Backoff) -> Freed {
        let freed = self.free(worker, self.owned_by(worker), WORKER_GONE, backoff);
        let gone = self.workers.remove(&worker);
        let retired = gone.as_ref().map_or_else(Vec::new, |gone| self.retire_gone(&gone.program.service));
        self.change_topology(&gone.map_or_else(Vec::new, |worker| worker.handlers));
        Freed { retired, ..freed }
    }

    /// Frees these runs of the worker. The results of the attempts are unknown.
    fn free(&mut self, worker: Uuid, runs: Vec<RowKey>, reason: &str, backoff: Backoff) -> Freed {
        let now = self.now();
        let mut stuck = vec![];
        for run in &runs {
            let definition = self.definition_of(worker, *run);
            self.change(*run, |row| {
                row.unknown_attempts =
                    if row.attempts + row.retries > 0 { row.unknown_attempts + 1 } else { 1 };
                row.tried(definition, None);
                row.attempts += 1;
                if row.unknown_attempts < UNKNOWN_MAX {
                    let pause = match row.unknown_attempts {
                        ..2 => Duration::ZERO,
                        lost => backoff.pause(lost - 2).mul_f64(spread(row.id(), lost)),
                    };
                    row.free(now + pause);
                    row.reason = Some(reason.into());
                } else {
                    row.free(now);
                    row.state = RowState::Stuck;
                    row.reason = Some(UNKNOWN_TOO_OFTEN.into());
                    stuck.push(*run);
                }
            });
        }
        stuck.iter().for_each(|run| self.send_stuck(*run));
        Freed { runs: runs.len(), stuck, retired: vec![] }
    }

    fn definition_of(&self, worker: Uuid, run: RowKey) -> Option<i32> {
        let (worker, row) = (self.workers.get(&worker)?, self.row(run)?);
        let at = worker.handlers.iter().position(|handler| **handler == *row.handler)?;
        worker.definitions.get(at).copied()
    }
}

/// The part of a pause, from 0.5 to 1.5, for this run after so many attempts; as in `run_free.sql`.
fn spread(run: Uuid, unknown_attempts: i32) -> f64 {
    let at = 9 + usize::try_from(unknown_attempts % 7).unwrap_or_default();
    0.5 + f64::from(run.as_bytes()[at]) / 255.0
}
