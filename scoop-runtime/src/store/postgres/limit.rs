//! The limits of sagas (`limit_*.sql`), and claims under them. A change of them is a change of the topology.
//!
//! A claim is a transaction: it locks the row of the limit (`limit_lock.sql`), counts the runs in execution
//! (`limit_follow.sql`), and claims as many as the limit admits. The count is a statement of its own, so that its snapshot
//! is later than the lock.
//!
//! * A run whose key is at its limit is parked (`limit_park.sql`): it stays `ready`, with its deadline or the year 9999 as
//!   `ready_at`, and `parked_since` has the former time. Statements that look for parked runs have `state::text = 'ready'`,
//!   which rules out the index of ready runs.
//! * A claim (`limit_parked.rs`) returns the parked runs of a key before it takes a later one (`return_earlier`), since a run of the key may
//!   have ended unnoticed. The claim that returns a run lowers the positions of its queue.
//! * A run that gives up before it has begun passes a concurrency by key, and does not count. A serial run counts until its
//!   end (`scoop.held_key`).
//! * A change waits for the claims under way of all workers (`limit_wait_for_claims.sql`). Parked runs stay parked if their
//!   keys come from the same (`keeps_keys_of`), otherwise they return in that transaction.
//! * A renamed saga has one row of `run_limit` with all its names. A row of another saga loses a name that it lists and this
//!   one has.
//!
//! Locks in this order: the rows of workers, the row of the limit, the rows of `run`. Rows of `rate_window` are written
//! under the lock of the limit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use scoop_core::Priority;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Postgres, Row, Transaction};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::claim::{Claim, has_run, record_scan, scan};
use super::decode::{time, time_if_any, unsigned};
use super::limit_known::{ClaimChanges, KnownSaga};
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use crate::error::{is_contended, is_of_contents};
use crate::model::limits::{HandlerLimits, Limit, Rate};
use crate::store::limit::{Admitted, LimitChange, RateChange, RecordedLimit, Returned, Usage};
use crate::store::rate::{RateState, RateWindow};
use crate::store::{
    Candidate, ClaimQueues, ClaimedRun, Claimer, LimitStorage, LimitedClaim, LimitedRequest, LimitedSaga,
    QueueCursors, QueueScan, SagaLimit, Unclaimed,
};
use crate::util::ids;
use crate::util::retries::note;

/// The number of runs of which one transaction computes the keys. It holds the lock of the limit meanwhile.
const CANDIDATES_MAX: usize = 500;

/// The bytes of payloads of which one statement reads, as they are stored, and for how long one transaction computes keys. The rest
/// is left to the next claim: the transaction has to end before the server ends it as idle.
const CANDIDATE_BYTES_MAX: i64 = 1 << 20;
const CANDIDATE_TIME_MAX: Duration = Duration::from_secs(1);

/// The time after which a claim reads no further page of runs: the claims of other sagas wait for its end. Throughput is the same
/// as with claims of any length, as measured.
const CLAIM_TIME_MAX: Duration = Duration::from_millis(15);

/// The number of runs of a handler that were left parked that one statement returns.
const ORPHANED_MAX: i64 = 1_000;

/// Begins a claim. It waits 100 ms for the lock of a limit; `engine/limits.rs` claims again later. The rows of runs are not waited for.
const BEGIN_CLAIM: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '100ms'";

/// A claim of the queues of one saga in a transaction that holds the lock of its limits.
struct UnderLimit {
    tx: Transaction<'static, Postgres>,
    limit: RecordedLimit,
    known: KnownSaga,
}

/// Due runs that may be claimed.
#[derive(Default)]
struct Candidates {
    /// The runs, each with its key; empty without one.
    runs: Vec<(Candidate, String)>,
    /// The runs of sagas whose key function only a newer program has.
    unkeyed: BTreeSet<Uuid>,
    /// Whether some were left out, since they took too long or their messages are too large.
    is_cut: bool,
    scan: Option<QueueScan>,
    /// The queues of all that it has found, and since when each is ready.
    found: Vec<Found>,
    /// The queue time of the last one, if there may be more.
    cut_at: Option<OffsetDateTime>,
}

/// A due run that a claim has found.
struct Found {
    id: Uuid,
    queue: (String, String, i32),
    priority: Priority,
    ready_at: Option<OffsetDateTime>,
}

impl Candidates {
    /// Records in the positions what the statement has seen, and the first runs of which a claim has taken none of these.
    fn record_scan(&self, queues: &ClaimQueues, taken: &BTreeSet<Uuid>, cursors: &mut QueueCursors) {
        let Some(scan) = &self.scan else { return };
        let found = self.found.iter().filter(|it| !taken.contains(&it.id));
        let found = found.map(|it| {
            let (topic, handler, queue) = &it.queue;
            ((&**topic, &**handler, *queue), it.priority, it.ready_at)
        });
        // The first ones that it has not found are ready since then at the earliest.
        let cut = self.cut_at.into_iter().flat_map(|at| {
            let of_level = move |level: Priority| {
                let head_start = time::Duration::try_from(Priority::HEAD_START).unwrap_or_default();
                at.checked_add(head_start * (level as i32))
            };
            queues.each().flat_map(move |queue| Priority::ALL.map(|level| (queue, level, of_level(level))))
        });
        cursors.record_ready(queues, scan, found.chain(cut));
    }
}

/// Why a claim under a limit failed.
enum ClaimError {
    /// A statement about the runs to be claimed failed because of their contents.
    OfRuns(sqlx::Error),
    /// The server, the connection, or the contents of another row, such as that of the limit: no run is to blame.
    Other(sqlx::Error),
}

impl ClaimError {
    /// The failure of a statement about nothing but the runs to be claimed.
    fn of_runs(error: sqlx::Error) -> Self {
        if is_of_contents(&error) { Self::OfRuns(error) } else { Self::Other(error) }
    }
}

impl From<sqlx::Error> for ClaimError {
    fn from(error: sqlx::Error) -> Self {
        Self::Other(error)
    }
}

impl LimitStorage for PostgresStore {
    async fn publish_limits(&self, limits: &[SagaLimit]) -> sqlx::Result<Vec<LimitChange>> {
        let names: Vec<_> = limits.iter().flat_map(SagaLimit::names).collect();
        let list = || sqlx::query(self.sql.limit_list.clone()).bind(names.clone());
        let known = all_recorded(&list().all(&self.sessions).await?)?;
        if LimitChange::of_all(limits, known).is_empty() {
            return Ok(vec![]);
        }
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_topology(&mut tx).await?;
        sqlx::query(self.sql.limit_wait_for_claims.clone()).execute(&mut *tx).await?;
        // Another program may have changed them meanwhile.
        let known = all_recorded(&list().all_on(&mut tx).await?)?;
        let changes = LimitChange::of_all(limits, known);
        for change in &changes {
            let LimitChange { own_names, all_names, unparked_handlers, keeps_rates_of, record, .. } = change;
            sqlx::query(self.sql.limit_delete.clone()).bind(own_names).execute(&mut *tx).await?;
            let unpark = sqlx::query(self.sql.limit_unpark_all.clone()).bind(unparked_handlers);
            unpark.execute(&mut *tx).await?;
            let delete = sqlx::query(self.sql.rate_delete.clone());
            delete.bind(all_names).bind(keeps_rates_of).execute(&mut *tx).await?;
            let forget = sqlx::query(self.sql.limit_forget_all.clone()).bind(all_names);
            forget.execute(&mut *tx).await?;
            if let Some(rates_of) = keeps_rates_of {
                let rename = sqlx::query(self.sql.rate_rename.clone());
                rename.bind(rates_of).bind(&change.saga).execute(&mut *tx).await?;
            }
            if let Some(record) = record {
                self.insert_limit(&mut tx, record).await?;
            }
        }
        self.notification(uuid::Uuid::nil()).execute(&mut *tx).await?;
        tx.commit().await.inspect_err(note)?;
        Ok(changes)
    }

    async fn claim_limited(&self, request: LimitedRequest<'_>) -> sqlx::Result<LimitedClaim> {
        let only = request.suspect.map(|suspect| vec![suspect.id]);
        match self.claim_under_limit(&request, only.as_deref()).await {
            Err(ClaimError::OfRuns(error)) => match request.suspect {
                Some(suspect) => {
                    let refused = self.mark_refused(suspect.root, suspect.id, &error).await?;
                    let runs = refused.map(Err).into_iter().collect();
                    Ok(LimitedClaim { runs, ..LimitedClaim::default() })
                }
                // Boxed, so that the usual claim is not as large as this one.
                None => Box::pin(self.claim_limited_apart(&request)).await,
            },
            Err(ClaimError::Other(error)) if is_contended(&error) => {
                Ok(LimitedClaim { is_locked: true, ..LimitedClaim::default() })
            }
            Err(ClaimError::Other(error)) => Err(error),
            Ok(claimed) => Ok(claimed),
        }
    }

    async fn unpark_orphaned(&self) -> sqlx::Result<Vec<String>> {
        sqlx::query_scalar(self.sql.limit_unpark_orphaned.clone())
            .bind(ORPHANED_MAX)
            .all(&self.sessions)
            .await
    }
}

impl PostgresStore {
    async fn claim_under_limit(
        &self,
        request: &LimitedRequest<'_>,
        only: Option<&[Uuid]>,
    ) -> Result<LimitedClaim, ClaimError> {
        let Some(mut under) = self.lock_limit(request).await? else {
            return Ok(LimitedClaim::default());
        };
        let at_runs = request.suspect.map(QueueCursors::at).unwrap_or_default();
        let request =
            &LimitedRequest { cursors: if only.is_some() { &at_runs } else { request.cursors }, ..*request };
        let (claimed, is_changed) = match under.limit.is_by_key() {
            false => self.claim_of_all(&mut under, request, only).await?,
            true => self.claim_by_key(&mut under, request, only).await?,
        };
        match is_changed {
            false => under.tx.rollback().await?,
            // A claim without an answer may have been made.
            true => under.tx.commit().await.inspect_err(note)?,
        }
        self.store_known(&under.limit.of, under.known);
        Ok(claimed)
    }

    /// Claims as many runs as the limits of the saga admit. Returns whether anything has changed, too.
    async fn claim_of_all(
        &self,
        UnderLimit { tx, limit, known }: &mut UnderLimit,
        request: &LimitedRequest<'_>,
        only: Option<&[Uuid]>,
    ) -> Result<(LimitedClaim, bool), ClaimError> {
        let queues = &request.queue.queues;
        // Statements of their own: they see what others have claimed while the lock was waited for.
        let mut usage = self.usage(tx, (limit, queues), known, &[]).await?;
        let free = usage.capacity_of_saga(limit);
        let most = request.slots.min(free);
        let (mut runs, mut cursors) = (vec![], request.cursors.clone());
        if most > 0 {
            let claim = Claim::uncounted(request.claimer, &request.queue.queues);
            let most = if only.is_some() { 1 } else { most };
            let rows = self.claim_query(&claim, most, request.cursors, only).all_on(tx).await;
            let rows = rows.map_err(ClaimError::of_runs)?;
            let identifier = request.claimer.identifier;
            if only.is_none() {
                record_scan(&rows, &request.queue.queues, most, &mut cursors)?;
            }
            let read =
                rows.iter().filter(|row| has_run(row)).map(|row| ClaimedRun::from_row(row, identifier));
            runs = read.collect::<sqlx::Result<_>>().map_err(ClaimError::of_runs)?;
            let taken = rows
                .iter()
                .filter(|row| has_run(row))
                .map(|row| Ok((row.try_get("root")?, row.try_get("id")?, String::new())));
            let taken = taken.collect::<sqlx::Result<_>>().map_err(ClaimError::of_runs)?;
            self.record_claim(tx, limit, known, ClaimChanges { taken, ..ClaimChanges::default() }).await?;
        }
        let is_changed = !runs.is_empty();
        if is_changed {
            let begun = RateChange::begun(runs.len());
            self.record_begun(tx, limit, &mut usage, [(String::new(), begun)].into()).await?;
        }
        let is_reached = free <= runs.len();
        let is_full = !is_reached && runs.len() == request.slots;
        let opens_in = usage.saga_opens_in(limit);
        let claim = LimitedClaim { is_full, is_reached, opens_in, runs, ..LimitedClaim::default() };
        Ok((LimitedClaim { cursors: only.is_none().then_some(cursors), ..claim }, is_changed))
    }

    /// Returns parked runs to their queues, of the freed keys and of those whose rate admits more. Then claims due runs as far as
    /// the limits of their keys admit, and parks those that it passes. Returns whether anything has changed, too.
    async fn claim_by_key(
        &self,
        UnderLimit { tx, limit, known }: &mut UnderLimit,
        request: &LimitedRequest<'_>,
        only: Option<&[Uuid]>,
    ) -> Result<(LimitedClaim, bool), ClaimError> {
        let (mut returned, mut cursors) = (Returned::default(), request.cursors.clone());
        let queues = &request.queue.queues;
        if only.is_none() && request.cursors.is_at_the_beginning() {
            known.rescan();
        }
        let (mut is_changed, page) =
            self.return_parked(tx, (limit, known), request, &mut returned, &mut cursors).await?;
        let mut usage = self.usage(tx, (limit, queues), known, &[]).await?;
        if only.is_none()
            && let Some(since) = known.take_returned_by_others()
        {
            cursors.lower(since);
        }
        let is_reached = usage.capacity_of_saga(limit) == 0;
        let mut all = LimitedClaim { is_reached, page, ..LimitedClaim::default() };
        let (mut asked, mut looked_at) = (request.slots, 0);
        let begun_at = Instant::now();
        let until = begun_at + CANDIDATE_TIME_MAX;
        while !all.is_reached
            && all.runs.len() < request.slots
            && looked_at < CANDIDATES_MAX
            && Instant::now() < until
        {
            let from = LimitedRequest { cursors: &cursors, ..*request };
            let found = self.candidates(tx, (limit, &from), asked, only, until).await;
            let mut found = found.map_err(ClaimError::of_runs)?;
            let (candidates, is_cut) = (std::mem::take(&mut found.runs), found.is_cut);
            let is_full = candidates.len() == asked || is_cut;
            looked_at += candidates.len();
            let keys: BTreeSet<_> = candidates.iter().map(|(_, key)| key.clone()).collect();
            usage = self.usage(tx, (limit, queues), known, &keys.iter().cloned().collect::<Vec<_>>()).await?;
            if only.is_none() {
                let returns = usage.returns(limit, &returned, keys);
                returned.add(&returns);
                let known = (&mut *known, &mut cursors);
                if self.return_earlier(tx, (limit, queues), &mut usage, &returns, known).await? {
                    (is_changed, all.is_full) = (true, true);
                    continue;
                }
            }
            let (before, free) = (all.runs.len(), usage.capacity_of_saga(limit));
            let mut admitted = Admitted::divide(candidates, &usage, limit, free.min(request.slots - before));
            admitted.over.retain(|(run, _)| !found.unkeyed.contains(&run.id));
            let chosen: BTreeSet<_> =
                admitted.runs.iter().chain(&admitted.over).map(|(run, _)| run.id).collect();
            let claimed = self.claim_chosen(tx, request.claimer, limit, &admitted.runs).await;
            let (claimed, taken) = claimed.map_err(ClaimError::of_runs)?;
            all.runs.extend(claimed);
            admitted.runs.iter().for_each(|(_, key)| returned.claim(key));
            let (count, parked) = self.park(tx, &admitted.over).await.map_err(ClaimError::of_runs)?;
            self.record_claim(tx, limit, known, ClaimChanges { taken, parked }).await?;
            self.record_begun(tx, limit, &mut usage, admitted.rate_changes(limit)).await?;
            let has_passed = count > 0;
            is_changed |= has_passed || !all.runs.is_empty();
            all.is_reached = all.runs.len() - before >= free;
            all.is_full = is_full && is_changed && !all.is_reached;
            if only.is_none() {
                found.record_scan(&request.queue.queues, &chosen, &mut cursors);
            }
            if !is_full || !has_passed || begun_at.elapsed() >= CLAIM_TIME_MAX {
                break;
            }
            // Most of the runs in front may be of a few keys.
            asked = (asked * 2).min(CANDIDATES_MAX);
        }
        // Runs may have returned that it has not taken.
        self.record_claim(tx, limit, known, ClaimChanges::default()).await?;
        all.cursors = only.is_none().then_some(cursors);
        if limit.rate_by_key().is_some() {
            let next = sqlx::query_scalar(self.sql.rate_next.clone()).bind(&limit.of.saga);
            all.opens_in = next.one_on(tx).await?;
        } else {
            all.opens_in = usage.saga_opens_in(limit);
        }
        Ok((all, is_changed))
    }

    pub(super) async fn usage(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        (limit, queues): (&RecordedLimit, &ClaimQueues),
        known: &mut KnownSaga,
        keys: &[String],
    ) -> sqlx::Result<Usage> {
        let mut usage = Usage::default();
        if limit.concurrency_of_saga().is_some() {
            usage.running = self.follow_claims(tx, (limit, queues), known, None).await?;
        } else if limit.is_by_key() {
            usage.running = self.follow_claims(tx, (limit, queues), known, Some(keys)).await?;
        }
        if limit.rate_of_saga().is_some() {
            self.read_rates(tx, limit, &[String::new()], &mut usage).await?;
        } else if limit.rate_by_key().is_some() && !keys.is_empty() {
            self.read_rates(tx, limit, keys, &mut usage).await?;
        }
        Ok(usage)
    }

    async fn read_rates(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        limit: &RecordedLimit,
        keys: &[String],
        usage: &mut Usage,
    ) -> sqlx::Result<()> {
        let read = sqlx::query(self.sql.rate_read.clone()).bind(&limit.of.saga).bind(keys);
        for row in read.all_on(tx).await? {
            usage.now = row.try_get("now")?;
            let Some(key) = row.try_get("key")? else { continue };
            let window: Option<Option<Json<RateWindow>>> = row.try_get("begun").ok();
            let window = window.flatten().map(|Json(window)| window).filter(RateWindow::is_bounded);
            let window = match (window, limit.rate) {
                (Some(window), _) => window,
                // What no program has written hides the runs that began before.
                (None, Some(rate)) => RateWindow::closed_until(rate.most, row.try_get("idle_at")?),
                (None, None) => RateWindow::default(),
            };
            let (opens_at, idle_at) = (row.try_get("opens_at")?, row.try_get("idle_at")?);
            let state = RateState { window, has_parked: row.try_get("has_parked")?, opens_at, idle_at };
            usage.rates.insert(key, state);
        }
        Ok(())
    }

    /// Records the runs that have begun, if a rate is limited. Returns whether anything has changed.
    pub(super) async fn record_begun(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        limit: &RecordedLimit,
        usage: &mut Usage,
        changes: BTreeMap<String, RateChange>,
    ) -> sqlx::Result<bool> {
        let Some(Limit { most: rate, .. }) = limit.rate.filter(|_| !changes.is_empty()) else {
            return Ok(false);
        };
        // The time after the claim: its events are earlier, so they are a period older when the next runs begin.
        self.read_rates(tx, limit, &[], usage).await?;
        let states = usage.rates_after(rate, changes);
        if states.is_empty() {
            return Ok(false);
        }
        let column = |of: fn(&RateState) -> i64| states.values().map(of).collect::<Vec<_>>();
        sqlx::query(self.sql.rate_write.clone())
            .bind(&limit.of.saga)
            .bind(states.keys().cloned().collect::<Vec<_>>())
            .bind(states.values().map(|state| Json(state.window.clone())).collect::<Vec<_>>())
            .bind(states.values().map(|state| state.has_parked).collect::<Vec<_>>())
            .bind(column(|state| state.opens_at))
            .bind(column(|state| state.idle_at))
            .execute(&mut **tx)
            .await?;
        usage.rates.extend(states);
        Ok(true)
    }

    async fn insert_limit(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        RecordedLimit { of: LimitedSaga { saga, handlers, key_from }, concurrency, serial, rate, queue }: &RecordedLimit,
    ) -> sqlx::Result<()> {
        let stored = |most: u32| i32::try_from(most).unwrap_or(i32::MAX);
        sqlx::query(self.sql.limit_insert.clone())
            .bind(saga)
            .bind(handlers)
            .bind(concurrency.map(|limit| stored(limit.most)))
            .bind(concurrency.is_some_and(|limit| limit.is_by_key))
            .bind(rate.map(|limit| stored(limit.most.runs)))
            .bind(rate.map(|limit| i64::try_from(limit.most.period_ms).unwrap_or(i64::MAX)))
            .bind(rate.is_some_and(|limit| limit.is_by_key))
            .bind(key_from)
            .bind(queue.map(stored))
            .bind(serial)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    async fn candidates(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        (limit, request): (&RecordedLimit, &LimitedRequest<'_>),
        count: usize,
        only: Option<&[Uuid]>,
        until: Instant,
    ) -> sqlx::Result<Candidates> {
        let queues = &request.queue.queues;
        let (open, since) = request.cursors.open();
        let rows = sqlx::query(self.sql.limit_candidates.clone())
            .bind(&queues.topics)
            .bind(&queues.handlers)
            .bind(&queues.reserved_for)
            .bind(i64::try_from(count).unwrap_or(i64::MAX))
            .bind(only)
            .bind(CANDIDATE_BYTES_MAX)
            .bind(request.cursors.since(queues, Priority::Normal))
            .bind(request.cursors.since(queues, Priority::High))
            .bind(request.cursors.since(queues, Priority::Low))
            .bind(open)
            .bind(since)
            .bind(&queues.begun_only)
            .all_on(tx)
            .await?;
        let mut candidates =
            Candidates { scan: rows.first().map(scan).transpose()?, ..Candidates::default() };
        for row in rows.iter().filter(|row| has_run(row)) {
            let level: i32 = row.try_get("priority")?;
            candidates.found.push(Found {
                id: row.try_get("id")?,
                queue: (row.try_get("topic")?, row.try_get("handler")?, row.try_get("lane")?),
                priority: Priority::ALL.into_iter().find(|it| *it as i32 == level).unwrap_or_default(),
                ready_at: time_if_any(row, "ready_at")?,
            });
        }
        if candidates.found.len() == count {
            candidates.cut_at = rows.last().map(|row| time(row, "queue_time")).transpose()?;
        }
        for row in rows.iter().filter(|row| has_run(row)) {
            if row.try_get("is_left_out")? || !candidates.runs.is_empty() && Instant::now() >= until {
                candidates.is_cut = true;
                break;
            }
            let candidate = Candidate {
                root: row.try_get("root")?,
                id: row.try_get("id")?,
                topic: row.try_get("topic")?,
                handler: row.try_get("handler")?,
                // One that cannot be read has no key.
                payload: row.try_get("payload").unwrap_or(Value::Null),
                serial_key: row.try_get("held_key")?,
                ends_unbegun: row.try_get("ends_unbegun")?,
            };
            let key = (request.key_of)(&candidate);
            if key.is_none() {
                candidates.unkeyed.insert(candidate.id);
            }
            let key = limit.key_of(&candidate, key);
            candidates.runs.push((candidate, key));
        }
        Ok(candidates)
    }

    /// Claims these runs, which this transaction has locked. Returns them, and those of which the claim has to be recorded.
    async fn claim_chosen(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        claimer: Claimer<'_>,
        limit: &RecordedLimit,
        runs: &[(Candidate, String)],
    ) -> sqlx::Result<(Vec<Result<ClaimedRun, Unclaimed>>, Vec<(Uuid, Uuid, String)>)> {
        let (mut all, mut taken) = (vec![], vec![]);
        if runs.is_empty() {
            return Ok((all, taken));
        }
        let (roots, ids, _) = columns(runs);
        let keys: Vec<_> = runs.iter().map(|(run, key)| run.counted_key(key)).collect();
        let is_by_key = limit.concurrency_by_key().is_some();
        let chosen: BTreeMap<_, _> = runs.iter().map(|(run, key)| (run.id, (run, key))).collect();
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
            let id: Uuid = row.try_get("id")?;
            let Some((candidate, key)) = chosen.get(&id) else { continue };
            // All count together for a concurrency of the saga.
            let counted = if is_by_key { candidate.counted_key(key) } else { Some(String::new()) };
            taken.extend(counted.map(|key| (candidate.root, id, key)));
            // The end of one that does not count leads to the next one, too.
            let limit_key = is_by_key.then(|| (*key).clone());
            let run = ClaimedRun::from_row(row, claimer.identifier)?;
            all.push(run.map(|run| ClaimedRun { limit_key, ..run }));
        }
        Ok((all, taken))
    }

    /// Claims ready runs one by one. A run whose claim the database refuses because of its contents is marked stuck.
    async fn claim_limited_apart(&self, request: &LimitedRequest<'_>) -> sqlx::Result<LimitedClaim> {
        let mut all = LimitedClaim::default();
        for (root, id) in self.ready(&request.queue.queues, request.slots).await? {
            let single = LimitedRequest { slots: 1, ..*request };
            match self.claim_under_limit(&single, Some(&[id])).await {
                Ok(LimitedClaim { runs, is_reached, opens_in, page, .. }) => {
                    all.runs.extend(runs);
                    (all.is_reached, all.opens_in, all.page) = (is_reached, opens_in, page);
                }
                Err(ClaimError::OfRuns(error)) => {
                    all.runs.extend(self.mark_refused(root, id, &error).await?.map(Err));
                }
                Err(ClaimError::Other(error)) if all.runs.is_empty() => return Err(error),
                // The runs claimed so far are executed.
                Err(ClaimError::Other(_)) => break,
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
        let mut tx = self.sessions.begin_with(BEGIN_CLAIM).await?;
        let lock = sqlx::query(self.sql.limit_lock.clone())
            .bind(request.claimer.worker)
            .bind(request.queue.queues.topology)
            .bind(&request.queue.of.saga);
        let Some(row) = lock.first_on(&mut tx).await? else {
            tx.rollback().await?;
            return Ok(None);
        };
        let (limit, known) =
            (recorded(&row)?, self.take_known(&request.queue.of, request.queue.queues.topology));
        Ok(Some(UnderLimit { tx, limit, known }))
    }
}

pub(super) fn columns(runs: &[(Candidate, String)]) -> (Vec<Uuid>, Vec<Uuid>, Vec<String>) {
    let (mut roots, mut ids, mut keys) = (vec![], vec![], vec![]);
    for (Candidate { root, id, .. }, key) in runs {
        roots.push(*root);
        ids.push(*id);
        keys.push(key.clone());
    }
    (roots, ids, keys)
}

fn recorded(row: &PgRow) -> sqlx::Result<RecordedLimit> {
    let of = LimitedSaga {
        saga: row.try_get("saga")?,
        handlers: row.try_get("handlers")?,
        key_from: row.try_get("key_from")?,
    };
    let HandlerLimits { concurrency, serial, rate, queue, .. } = limits(row)?;
    Ok(RecordedLimit { of, concurrency, serial, rate, queue })
}

pub(super) fn limits(row: &PgRow) -> sqlx::Result<HandlerLimits> {
    let queue = row.try_get::<Option<i32>, _>("queue")?.map(unsigned);
    Ok(HandlerLimits {
        concurrency: concurrency(row)?,
        serial: serial(row)?,
        rate: rate(row)?,
        queue,
        by: row.try_get::<Option<String>, _>("key_from")?.filter(|by| !by.is_empty()),
    })
}

/// The limit of the runs that are executed at once, if the row has one.
pub fn concurrency(row: &PgRow) -> sqlx::Result<Option<Limit<u32>>> {
    let Some(most) = row.try_get("concurrency")? else { return Ok(None) };
    Ok(Some(Limit { most: unsigned(most), is_by_key: row.try_get("concurrency_by_key")? }))
}

/// Whether runs count for the concurrency until their ends.
pub fn serial(row: &PgRow) -> sqlx::Result<bool> {
    Ok(row.try_get::<Option<bool>, _>("serial")?.unwrap_or_default())
}

/// The limit of the runs that begin within a period, if the row has one.
pub fn rate(row: &PgRow) -> sqlx::Result<Option<Limit<Rate>>> {
    let Some(runs) = row.try_get("rate")? else { return Ok(None) };
    let period_ms: i64 = row.try_get("rate_period_ms")?;
    let rate = Rate { runs: unsigned(runs), period_ms: u64::try_from(period_ms).unwrap_or(0) };
    Ok(Some(Limit { most: rate, is_by_key: row.try_get("rate_by_key")? }))
}

fn all_recorded(rows: &[PgRow]) -> sqlx::Result<Vec<RecordedLimit>> {
    rows.iter().map(recorded).collect()
}
