//! The limits of sagas (`limit_*.sql`), and claims under them. A change of them is a change of the topology.

use sqlx::postgres::PgRow;
use sqlx::{Postgres, Row, Transaction};

use super::PostgresStore;
use super::claim::Claim;
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use crate::error::is_of_contents;
use crate::store::limit::RecordedLimit;
use crate::store::{
    ClaimedRun, Claimer, LimitStorage, LimitedClaim, LimitedQueue, LimitedSaga, QueueCursors, SagaLimit,
    Suspect, Unclaimed,
};
use crate::util::patience::note;

/// A claim of the queues of one saga in a transaction that holds the lock of its limit.
struct UnderLimit {
    tx: Transaction<'static, Postgres>,
    /// How many more runs the limit admits.
    room: usize,
}

impl LimitStorage for PostgresStore {
    async fn publish_limits(&self, limits: &[SagaLimit]) -> sqlx::Result<()> {
        let list = || sqlx::query(self.sql.limit_list.clone());
        let known = recorded(&list().all(&self.sessions).await?)?;
        if !limits.iter().any(|limit| limit.is_outdated(&known)) {
            return Ok(());
        }
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_topology(&mut tx).await?;
        sqlx::query(self.sql.limit_wait_for_claims.clone()).execute(&mut *tx).await?;
        // Another program may have changed them meanwhile.
        let known = recorded(&list().all_on(&mut tx).await?)?;
        for limit in limits.iter().filter(|limit| limit.is_outdated(&known)) {
            let names: Vec<_> = limit.was.iter().chain([&limit.saga]).collect();
            sqlx::query(self.sql.limit_delete.clone()).bind(names).execute(&mut *tx).await?;
            if let Some(RecordedLimit { of: LimitedSaga { saga, handlers }, concurrency }) =
                limit.to_record(&known)
            {
                let insert = sqlx::query(self.sql.limit_insert.clone());
                insert.bind(saga).bind(handlers).bind(concurrency).execute(&mut *tx).await?;
            }
        }
        self.notification(uuid::Uuid::nil()).execute(&mut *tx).await?;
        tx.commit().await.inspect_err(note)
    }

    async fn claim_limited(
        &self,
        claimer: Claimer<'_>,
        queue: &LimitedQueue,
        slots: usize,
        suspect: Option<&Suspect>,
    ) -> sqlx::Result<LimitedClaim> {
        let only = suspect.map(|suspect| vec![suspect.id]);
        match self.claim_under_limit(claimer, queue, slots, only.as_deref()).await {
            Err(error) if is_of_contents(&error) => match suspect {
                Some(suspect) => {
                    let refused = self.mark_refused(suspect.root, suspect.id, &error).await?;
                    Ok(LimitedClaim { runs: refused.map(Err).into_iter().collect(), is_reached: false })
                }
                // Boxed, so that the usual claim is not as large as this one.
                None => Box::pin(self.claim_limited_apart(claimer, queue, slots)).await,
            },
            claimed => claimed,
        }
    }
}

impl PostgresStore {
    async fn claim_under_limit(
        &self,
        claimer: Claimer<'_>,
        queue: &LimitedQueue,
        slots: usize,
        only: Option<&[uuid::Uuid]>,
    ) -> sqlx::Result<LimitedClaim> {
        let Some(UnderLimit { mut tx, room }) = self.lock_limit(claimer, queue).await? else {
            return Ok(LimitedClaim::default());
        };
        let limit = slots.min(room);
        let mut runs = vec![];
        if limit > 0 {
            let claim = Claim::uncounted(claimer, &queue.lanes);
            let limit = if only.is_some() { 1 } else { limit };
            let rows =
                self.claim_query(&claim, limit, &QueueCursors::default(), only).all_on(&mut tx).await?;
            runs = claimed(&rows, claimer)?;
        }
        match runs.is_empty() {
            true => tx.rollback().await?,
            // A claim without an answer may have been made.
            false => tx.commit().await.inspect_err(note)?,
        }
        Ok(LimitedClaim { is_reached: room <= runs.len(), runs })
    }

    /// Claims ready runs one by one. A run whose claim the database refuses is marked stuck.
    async fn claim_limited_apart(
        &self,
        claimer: Claimer<'_>,
        queue: &LimitedQueue,
        slots: usize,
    ) -> sqlx::Result<LimitedClaim> {
        let mut all = LimitedClaim::default();
        for (root, id) in self.ready(&queue.lanes, slots).await? {
            match self.claim_under_limit(claimer, queue, 1, Some(&[id])).await {
                Ok(LimitedClaim { runs, is_reached }) => {
                    all.runs.extend(runs);
                    all.is_reached = is_reached;
                }
                Err(error) if is_of_contents(&error) => {
                    all.runs.extend(self.mark_refused(root, id, &error).await?.map(Err));
                }
                Err(error) if all.runs.is_empty() => return Err(error),
                // The runs claimed so far are executed.
                Err(_) => break,
            }
            if all.is_reached {
                break;
            }
        }
        Ok(all)
    }

    /// Begins a transaction that holds the lock of a limit. None if the limit is gone, or this worker knows of another
    /// topology.
    async fn lock_limit(
        &self,
        claimer: Claimer<'_>,
        queue: &LimitedQueue,
    ) -> sqlx::Result<Option<UnderLimit>> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        let lock = sqlx::query_as(self.sql.limit_lock.clone())
            .bind(claimer.worker)
            .bind(queue.lanes.topology)
            .bind(&queue.saga);
        let locked: Option<(Vec<String>, i32)> = lock.first_on(&mut tx).await?;
        let Some((handlers, concurrency)) = locked else {
            tx.rollback().await?;
            return Ok(None);
        };
        // A statement of its own: it sees what others have claimed while the lock was waited for.
        let count =
            sqlx::query_scalar(self.sql.limit_count.clone()).bind(handlers).bind(i64::from(concurrency));
        let running: i64 = count.one_on(&mut tx).await?;
        let room = usize::try_from(i64::from(concurrency) - running).unwrap_or(0);
        Ok(Some(UnderLimit { tx, room }))
    }
}

fn claimed(rows: &[PgRow], claimer: Claimer<'_>) -> sqlx::Result<Vec<Result<ClaimedRun, Unclaimed>>> {
    rows.iter().map(|row| ClaimedRun::from_row(row, claimer.identifier)).collect()
}

fn recorded(rows: &[PgRow]) -> sqlx::Result<Vec<RecordedLimit>> {
    let read = |row: &PgRow| -> sqlx::Result<RecordedLimit> {
        let of = LimitedSaga { saga: row.try_get("saga")?, handlers: row.try_get("handlers")? };
        Ok(RecordedLimit { of, concurrency: row.try_get("concurrency")? })
    };
    rows.iter().map(read).collect()
}
