//! The limits of sagas (`limit_*.sql`), and claims under them. A change of them is a change of the topology.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, Row, Transaction};
use uuid::Uuid;

use super::PostgresStore;
use super::claim::Claim;
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use crate::error::is_of_contents;
use crate::store::limit::{Admitted, RecordedLimit};
use crate::store::{
    Candidate, ClaimedRun, Claimer, FreedKeys, LimitStorage, LimitedClaim, LimitedRequest, LimitedSaga,
    QueueCursors, SagaLimit, Unclaimed,
};
use crate::util::ids;
use crate::util::patience::note;

/// The number of runs of which one transaction computes the keys. It holds the lock of the limit meanwhile.
const CANDIDATES_MAX: usize = 500;

/// The number of runs that a claim looks at beyond its slots: another transaction may have locked those in front.
const SPARE: usize = 5;

/// A claim of the queues of one saga in a transaction that holds the lock of its limit.
struct UnderLimit {
    tx: Transaction<'static, Postgres>,
    limit: RecordedLimit,
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
            let parked: Vec<_> = limit.recorded(&known).flat_map(|it| it.of.handlers.iter()).collect();
            sqlx::query(self.sql.limit_unpark_all.clone()).bind(parked).execute(&mut *tx).await?;
            if let Some(RecordedLimit { of: LimitedSaga { saga, handlers, key_from }, concurrency }) =
                limit.to_record(&known)
            {
                let insert = sqlx::query(self.sql.limit_insert.clone());
                let insert = insert.bind(saga).bind(handlers).bind(concurrency).bind(key_from);
                insert.execute(&mut *tx).await?;
            }
        }
        self.notification(uuid::Uuid::nil()).execute(&mut *tx).await?;
        tx.commit().await.inspect_err(note)
    }

    async fn claim_limited(&self, request: LimitedRequest<'_>) -> sqlx::Result<LimitedClaim> {
        let only = request.suspect.map(|suspect| vec![suspect.id]);
        match self.claim_under_limit(&request, only.as_deref()).await {
            Err(error) if is_of_contents(&error) => match request.suspect {
                Some(suspect) => {
                    let refused = self.mark_refused(suspect.root, suspect.id, &error).await?;
                    let runs = refused.map(Err).into_iter().collect();
                    Ok(LimitedClaim { runs, ..LimitedClaim::default() })
                }
                // Boxed, so that the usual claim is not as large as this one.
                None => Box::pin(self.claim_limited_apart(&request)).await,
            },
            claimed => claimed,
        }
    }
}

impl PostgresStore {
    async fn claim_under_limit(
        &self,
        request: &LimitedRequest<'_>,
        only: Option<&[Uuid]>,
    ) -> sqlx::Result<LimitedClaim> {
        let Some(mut under) = self.lock_limit(request).await? else {
            return Ok(LimitedClaim::default());
        };
        let (claimed, is_changed) = match under.limit.of.key_from {
            None => self.claim_of_all(&mut under, request, only).await?,
            Some(_) => self.claim_by_key(&mut under, request, only).await?,
        };
        match is_changed {
            false => under.tx.rollback().await?,
            // A claim without an answer may have been made.
            true => under.tx.commit().await.inspect_err(note)?,
        }
        Ok(claimed)
    }

    /// Claims as many runs as the limit of the saga admits. Returns whether anything has changed, too.
    async fn claim_of_all(
        &self,
        UnderLimit { tx, limit: RecordedLimit { of, concurrency } }: &mut UnderLimit,
        request: &LimitedRequest<'_>,
        only: Option<&[Uuid]>,
    ) -> sqlx::Result<(LimitedClaim, bool)> {
        // A statement of its own: it sees what others have claimed while the lock was waited for.
        let count = sqlx::query_scalar(self.sql.limit_count.clone()).bind(&of.handlers);
        let running: i64 = count.bind(i64::from(*concurrency)).one_on(tx).await?;
        let room = usize::try_from(i64::from(*concurrency) - running).unwrap_or(0);
        let most = request.slots.min(room);
        let mut runs = vec![];
        if most > 0 {
            let claim = Claim::uncounted(request.claimer, &request.queue.lanes);
            let most = if only.is_some() { 1 } else { most };
            let rows = self.claim_query(&claim, most, &QueueCursors::default(), only).all_on(tx).await?;
            let identifier = request.claimer.identifier;
            runs =
                rows.iter().map(|row| ClaimedRun::from_row(row, identifier)).collect::<sqlx::Result<_>>()?;
        }
        let (is_reached, is_changed) = (room <= runs.len(), !runs.is_empty());
        let is_full = !is_reached && runs.len() == request.slots;
        Ok((LimitedClaim { is_full, is_reached, runs }, is_changed))
    }

    /// Returns parked runs of the freed keys to their queues. Then claims due runs as far as the limits of their keys admit,
    /// and parks those that it passes. Returns whether anything has changed, too.
    async fn claim_by_key(
        &self,
        UnderLimit { tx, limit: RecordedLimit { of, concurrency } }: &mut UnderLimit,
        request: &LimitedRequest<'_>,
        only: Option<&[Uuid]>,
    ) -> sqlx::Result<(LimitedClaim, bool)> {
        let mut is_changed = self.unpark(tx, of, *concurrency, request.freed).await?;
        let mut all = LimitedClaim::default();
        let (mut asked, mut looked_at) = (request.slots + SPARE, 0);
        while all.runs.len() < request.slots && looked_at < CANDIDATES_MAX {
            let candidates = self.candidates(tx, request, asked, only).await?;
            let is_full = candidates.len() == asked;
            looked_at += candidates.len();
            let running = self.running_by_key(tx, of, &candidates).await?;
            let most = request.slots - all.runs.len();
            let Admitted { runs, mut over } = Admitted::divide(candidates, running, *concurrency, most);
            let missed = self.claim_chosen(tx, request.claimer, runs, &mut all.runs).await?;
            // Without a run in execution nothing would return a parked one to its queue.
            over.retain(|(_, key)| !missed.contains(key));
            let parked = self.park(tx, over).await?;
            let has_passed = parked > 0;
            is_changed |= has_passed || !all.runs.is_empty();
            all.is_full = is_full && is_changed;
            if !is_full || !has_passed {
                break;
            }
            // Most of the runs in front may be of a few keys.
            asked = (asked * 2).min(CANDIDATES_MAX);
        }
        Ok((all, is_changed))
    }

    /// Returns parked runs of these keys to their queues, as far as there are places. Returns whether there were any.
    async fn unpark(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        of: &LimitedSaga,
        concurrency: i32,
        freed: &FreedKeys,
    ) -> sqlx::Result<bool> {
        let all: Vec<String>;
        let keys = match freed {
            FreedKeys::Some(keys) => keys,
            FreedKeys::Any => {
                let list = sqlx::query_scalar(self.sql.limit_list_keys.clone()).bind(&of.handlers);
                all = list.all_on(tx).await?;
                &all
            }
        };
        if keys.is_empty() {
            return Ok(false);
        }
        let unpark = sqlx::query(self.sql.limit_unpark.clone());
        let unparked = unpark.bind(&of.handlers).bind(keys).bind(i64::from(concurrency)).all_on(tx).await?;
        Ok(!unparked.is_empty())
    }

    /// So many due runs with their keys.
    async fn candidates(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        request: &LimitedRequest<'_>,
        count: usize,
        only: Option<&[Uuid]>,
    ) -> sqlx::Result<Vec<(Candidate, String)>> {
        let lanes = &request.queue.lanes;
        let rows = sqlx::query(self.sql.limit_candidates.clone())
            .bind(&lanes.topics)
            .bind(&lanes.handlers)
            .bind(&lanes.reserved_for)
            .bind(i64::try_from(count).unwrap_or(i64::MAX))
            .bind(only)
            .all_on(tx)
            .await?;
        let candidate = |row: &PgRow| -> sqlx::Result<(Candidate, String)> {
            let candidate = Candidate {
                root: row.try_get("root")?,
                id: row.try_get("id")?,
                topic: row.try_get("topic")?,
                handler: row.try_get("handler")?,
                // One that cannot be read has no key.
                payload: row.try_get("payload").unwrap_or(Value::Null),
            };
            let key = (request.key_of)(&candidate);
            Ok((candidate, key))
        };
        rows.iter().map(candidate).collect()
    }

    /// How many runs of the keys of these runs are in execution.
    async fn running_by_key(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        of: &LimitedSaga,
        candidates: &[(Candidate, String)],
    ) -> sqlx::Result<BTreeMap<String, i64>> {
        let keys: BTreeSet<_> = candidates.iter().map(|(_, key)| key).collect();
        if keys.is_empty() {
            return Ok(BTreeMap::new());
        }
        let count = sqlx::query_as(self.sql.limit_count_keys.clone());
        let count = count.bind(&of.handlers).bind(keys.into_iter().collect::<Vec<_>>());
        let running: Vec<(String, i64)> = count.all_on(tx).await?;
        Ok(running.into_iter().collect())
    }

    /// Parks runs. Returns how many.
    async fn park(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        runs: Vec<(Candidate, String)>,
    ) -> sqlx::Result<u64> {
        if runs.is_empty() {
            return Ok(0);
        }
        let (roots, ids, keys) = columns(runs);
        let park = sqlx::query(self.sql.limit_park.clone()).bind(roots).bind(ids).bind(keys);
        Ok(park.execute(&mut **tx).await?.rows_affected())
    }

    /// Claims these runs, and adds them to the claimed ones. Returns the keys of those that were not there any more, or that
    /// another transaction has locked.
    async fn claim_chosen(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        claimer: Claimer<'_>,
        runs: Vec<(Candidate, String)>,
        all: &mut Vec<Result<ClaimedRun, Unclaimed>>,
    ) -> sqlx::Result<BTreeSet<String>> {
        if runs.is_empty() {
            return Ok(BTreeSet::new());
        }
        let (roots, ids, keys) = columns(runs);
        let mut missed: BTreeMap<_, _> = ids.iter().copied().zip(keys.iter().cloned()).collect();
        let events: Vec<_> = ids.iter().map(|_| ids::now_v7()).collect();
        let rows = sqlx::query(self.sql.limit_claim.clone())
            .bind(claimer.worker)
            .bind(claimer.identifier)
            .bind(roots)
            .bind(&ids)
            .bind(i64::try_from(ids.len()).unwrap_or(i64::MAX))
            .bind(keys)
            .bind(events)
            .all_on(tx)
            .await?;
        for row in &rows {
            let limit_key = missed.remove(&row.try_get("id")?);
            let run = ClaimedRun::from_row(row, claimer.identifier)?;
            all.push(run.map(|run| ClaimedRun { limit_key, ..run }));
        }
        Ok(missed.into_values().collect())
    }

    /// Claims ready runs one by one. A run whose claim the database refuses is marked stuck.
    async fn claim_limited_apart(&self, request: &LimitedRequest<'_>) -> sqlx::Result<LimitedClaim> {
        let mut all = LimitedClaim::default();
        for (root, id) in self.ready(&request.queue.lanes, request.slots).await? {
            let alone = LimitedRequest { slots: 1, ..*request };
            match self.claim_under_limit(&alone, Some(&[id])).await {
                Ok(LimitedClaim { runs, is_reached, .. }) => {
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
    async fn lock_limit(&self, request: &LimitedRequest<'_>) -> sqlx::Result<Option<UnderLimit>> {
        let LimitedSaga { saga, .. } = &request.queue.of;
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        let lock = sqlx::query_as(self.sql.limit_lock.clone())
            .bind(request.claimer.worker)
            .bind(request.queue.lanes.topology)
            .bind(saga);
        let locked: Option<(Vec<String>, i32, Option<String>)> = lock.first_on(&mut tx).await?;
        let Some((handlers, concurrency, key_from)) = locked else {
            tx.rollback().await?;
            return Ok(None);
        };
        let of = LimitedSaga { saga: saga.clone(), handlers, key_from };
        Ok(Some(UnderLimit { tx, limit: RecordedLimit { of, concurrency } }))
    }
}

/// The roots, ids and keys of runs.
fn columns(runs: Vec<(Candidate, String)>) -> (Vec<Uuid>, Vec<Uuid>, Vec<String>) {
    let (mut roots, mut ids, mut keys) = (vec![], vec![], vec![]);
    for (Candidate { root, id, .. }, key) in runs {
        roots.push(root);
        ids.push(id);
        keys.push(key);
    }
    (roots, ids, keys)
}

fn recorded(rows: &[PgRow]) -> sqlx::Result<Vec<RecordedLimit>> {
    let read = |row: &PgRow| -> sqlx::Result<RecordedLimit> {
        let of = LimitedSaga {
            saga: row.try_get("saga")?,
            handlers: row.try_get("handlers")?,
            key_from: row.try_get("key_from")?,
        };
        Ok(RecordedLimit { of, concurrency: row.try_get("concurrency")? })
    };
    rows.iter().map(read).collect()
}
