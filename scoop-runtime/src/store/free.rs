//! Frees the runs that their owner does not execute: those of dead workers, and those that a worker has lost track of.

use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::Tables;
use super::alone::Alone;
use super::engine::READ_COMMITTED;
use crate::settings::Backoff;

/// How many attempts of a run may have an unknown result before its next event; with the last one the run is stuck. With the
/// pauses of the engine that takes about a minute or more.
pub(crate) const UNKNOWN_MAX: i32 = 12;

/// The reason of a run whose last attempt ended with its worker.
pub(crate) const WORKER_GONE: &str = "the worker that executed it ended";

/// The reason of a run whose last attempt ended without an answer of the database, or in a panic of the worker.
pub(crate) const ANSWER_LOST: &str = "the result of the last attempt is unknown";

/// The reason of a run that is stuck because of them.
pub(crate) const UNKNOWN_TOO_OFTEN: &str = "the results of 12 of its attempts are unknown: each time the worker ended or \
    panicked, or the answer of the database was lost; see the logs. `Scoop::retry` makes it run again";

/// The runs that became free.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Freed {
    pub(crate) runs: usize,
    /// Those among them that are stuck, with their hierarchies.
    pub(crate) stuck: Vec<(Uuid, Uuid)>,
}

/// The dead workers that were deleted.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Reaped {
    pub(crate) workers: usize,
    pub(crate) freed: Freed,
}

/// The result of a reconciliation.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Disowned {
    pub(crate) freed: Freed,
    /// The handlers of the runs that were waiting although no child was left, and are ready now.
    pub(crate) woken: Vec<String>,
}

/// A worker: its id, its sagas, and the definition of each.
type Owner = (Uuid, Vec<String>, Vec<i32>);

impl Tables {
    /// Deletes this worker, frees its runs, and notifies the others, since they may continue these.
    pub(crate) async fn leave(&self, worker: Uuid, backoff: Backoff) -> sqlx::Result<Freed> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_topology(&mut tx).await?;
        let left = sqlx::query_as(self.sql.worker_leave.clone()).bind(worker).fetch_all(&mut *tx).await?;
        let freed = self.free(&mut tx, &left, &[], WORKER_GONE, backoff).await?;
        self.reconsider(&mut tx, &handlers(left)).await?;
        self.notification(worker).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(freed)
    }

    /// Deletes dead workers and frees their runs.
    pub(crate) async fn reap(&self, worker: Uuid, backoff: Backoff) -> sqlx::Result<Reaped> {
        let look = sqlx::query_scalar(self.sql.worker_dead.clone()).bind(worker);
        if !look.one(&self.sessions).await? {
            return Ok(Reaped::default());
        }
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_topology(&mut tx).await?;
        let dead: Vec<Owner> =
            sqlx::query_as(self.sql.worker_reap.clone()).bind(worker).fetch_all(&mut *tx).await?;
        let freed = self.free(&mut tx, &dead, &[], WORKER_GONE, backoff).await?;
        let workers = dead.len();
        self.reconsider(&mut tx, &handlers(dead)).await?;
        sqlx::query(self.sql.run_sweep.clone()).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(Reaped { workers, freed })
    }

    /// Frees the runs of this worker that are not in flight, and those without a registered owner, and makes the runs ready
    /// that it may have failed to wake. `in_flight` is called when no claim is under way.
    pub(crate) async fn disown(
        &self,
        worker: Uuid,
        in_flight: impl Fn() -> Vec<Uuid>,
        backoff: Backoff,
    ) -> sqlx::Result<Disowned> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        let paused: Vec<Owner> =
            sqlx::query_as(self.sql.worker_pause.clone()).bind(worker).fetch_all(&mut *tx).await?;
        // An unregistered worker owns nothing. Registered again, it may own runs before this transaction ends.
        let mut freed = Freed::default();
        if !paused.is_empty() {
            let orphaned = sqlx::query_scalar(self.sql.run_orphaned.clone()).fetch_all(&mut *tx).await?;
            let unlisted = orphaned.into_iter().map(|owner| (owner, vec![], vec![]));
            let owners: Vec<_> = paused.into_iter().chain(unlisted).collect();
            freed = self.free(&mut tx, &owners, &in_flight(), ANSWER_LOST, backoff).await?;
        }
        tx.commit().await?;
        // In a transaction of its own: it takes longer, and claims wait for the end of the one above.
        Ok(Disowned { freed, woken: self.sweep().await? })
    }

    /// Frees the runs of these owners that are not in flight.
    async fn free(
        &self,
        connection: &mut PgConnection,
        owners: &[Owner],
        in_flight: &[Uuid],
        reason: &str,
        backoff: Backoff,
    ) -> sqlx::Result<Freed> {
        let each = || owners.iter().flat_map(|(id, handlers, _)| handlers.iter().map(move |it| (*id, &**it)));
        let rows = sqlx::query(self.sql.run_free.clone())
            .bind(owners.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
            .bind(in_flight)
            .bind(each().map(|(id, _)| id).collect::<Vec<_>>())
            .bind(each().map(|(_, handler)| handler).collect::<Vec<_>>())
            .bind(owners.iter().flat_map(|(.., definitions)| definitions).copied().collect::<Vec<_>>())
            .bind(backoff.first.as_secs_f64())
            .bind(backoff.longest.as_secs_f64())
            .bind(UNKNOWN_MAX)
            .bind(reason)
            .bind(UNKNOWN_TOO_OFTEN)
            .fetch_all(connection)
            .await?;
        let mut freed = Freed { runs: rows.len(), stuck: vec![] };
        for row in &rows {
            if row.try_get("stuck")? {
                freed.stuck.push((row.try_get("root")?, row.try_get("id")?));
            }
        }
        Ok(freed)
    }
}

/// The part of a pause, from 0.5 to 1.5, for this run after so many attempts; as in `run_free.sql`.
pub(super) fn spread(run: Uuid, doubts: i32) -> f64 {
    let place = 9 + usize::try_from(doubts % 7).unwrap_or_default();
    0.5 + f64::from(run.as_bytes()[place]) / 255.0
}

fn handlers(owners: Vec<Owner>) -> Vec<String> {
    owners.into_iter().flat_map(|(_, handlers, _)| handlers).collect()
}
