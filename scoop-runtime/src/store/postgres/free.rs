//! Frees the runs that their owner does not execute: those of dead workers (`worker_reap.sql`), and those that a worker
//! has lost track of. `run_free.sql` counts such an attempt, and marks a run stuck after too many.

use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::PostgresStore;
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use crate::model::backoff::Backoff;
use crate::store::types::{ANSWER_LOST, UNKNOWN_MAX, UNKNOWN_TOO_OFTEN, WORKER_GONE};
use crate::store::{FreeStorage, Freed, Reaped, Reconciled};

/// A worker: its id, the topics, sagas and definitions of its handlers, and its service. A saga with several topics has an element
/// for each of them.
type Owner = (Uuid, Vec<String>, Vec<String>, Vec<i32>, String);

impl FreeStorage for PostgresStore {
    async fn reconcile(
        &self,
        worker: Uuid,
        in_flight: impl Fn() -> Vec<Uuid>,
        backoff: Backoff,
    ) -> sqlx::Result<Reconciled> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        let paused: Vec<Owner> =
            sqlx::query_as(self.sql.worker_wait_for_claims.clone()).bind(worker).all_on(&mut tx).await?;
        // An unregistered worker owns nothing. Registered again, it may own runs before this transaction ends.
        let mut freed = Freed::default();
        if !paused.is_empty() {
            let orphaned =
                sqlx::query_scalar(self.sql.worker_list_unregistered.clone()).all_on(&mut tx).await?;
            let unlisted = orphaned.into_iter().map(|owner| (owner, vec![], vec![], vec![], String::new()));
            let owners: Vec<_> = paused.into_iter().chain(unlisted).collect();
            freed = self.free(&mut tx, &owners, &in_flight(), ANSWER_LOST, backoff).await?;
        }
        tx.commit().await?;
        // In a transaction of its own: it takes longer, and claims wait for the end of the one above.
        Ok(Reconciled { freed, woken: self.sweep().await? })
    }

    async fn reap(&self, worker: Uuid, backoff: Backoff) -> sqlx::Result<Reaped> {
        let is_any_dead = sqlx::query_scalar(self.sql.worker_any_dead.clone()).bind(worker);
        if !is_any_dead.one(&self.sessions).await? {
            return Ok(Reaped::default());
        }
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_topology(&mut tx).await?;
        let dead: Vec<Owner> =
            sqlx::query_as(self.sql.worker_reap.clone()).bind(worker).all_on(&mut tx).await?;
        if dead.is_empty() {
            // It has left by itself meanwhile. A change of the topology would commit, and nobody would be notified.
            tx.rollback().await?;
            return Ok(Reaped::default());
        }
        let retired = self.retire_gone(&mut tx, &services(&dead), worker).await?;
        let freed = Freed { retired, ..self.free(&mut tx, &dead, &[], WORKER_GONE, backoff).await? };
        let workers = dead.len();
        self.reconsider(&mut tx, &handlers(dead)).await?;
        sqlx::query(self.sql.run_wake_missed.clone()).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(Reaped { workers, freed })
    }

    async fn deregister(&self, worker: Uuid, backoff: Backoff) -> sqlx::Result<Freed> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_topology(&mut tx).await?;
        let left: Vec<Owner> =
            sqlx::query_as(self.sql.worker_delete.clone()).bind(worker).all_on(&mut tx).await?;
        let retired = self.retire_gone(&mut tx, &services(&left), worker).await?;
        let freed = Freed { retired, ..self.free(&mut tx, &left, &[], WORKER_GONE, backoff).await? };
        self.reconsider(&mut tx, &handlers(left)).await?;
        self.notification(worker).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(freed)
    }
}

impl PostgresStore {
    async fn free(
        &self,
        connection: &mut PgConnection,
        owners: &[Owner],
        in_flight: &[Uuid],
        reason: &str,
        backoff: Backoff,
    ) -> sqlx::Result<Freed> {
        let each = || {
            owners.iter().flat_map(|(id, topics, handlers, definitions, _)| {
                topics.iter().zip(handlers).zip(definitions).map(move |((topic, handler), definition)| {
                    (*id, topic.as_str(), handler.as_str(), *definition)
                })
            })
        };
        let rows = sqlx::query(self.sql.run_free.clone())
            .bind(owners.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
            .bind(in_flight)
            .bind(each().map(|(id, ..)| id).collect::<Vec<_>>())
            .bind(each().map(|(_, topic, ..)| topic).collect::<Vec<_>>())
            .bind(each().map(|(_, _, handler, _)| handler).collect::<Vec<_>>())
            .bind(each().map(|(.., definition)| definition).collect::<Vec<_>>())
            .bind(backoff.first.as_secs_f64())
            .bind(backoff.longest.as_secs_f64())
            .bind(UNKNOWN_MAX)
            .bind(reason)
            .bind(UNKNOWN_TOO_OFTEN)
            .fetch_all(connection)
            .await?;
        let mut freed = Freed { runs: rows.len(), stuck: vec![], retired: vec![] };
        for row in &rows {
            if row.try_get("stuck")? {
                freed.stuck.push((row.try_get("root")?, row.try_get("id")?));
            }
        }
        Ok(freed)
    }
}

fn handlers(owners: Vec<Owner>) -> Vec<String> {
    owners.into_iter().flat_map(|(_, _, handlers, ..)| handlers).collect()
}

fn services(owners: &[Owner]) -> Vec<&str> {
    owners.iter().map(|(.., service)| &**service).collect()
}
