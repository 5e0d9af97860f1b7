//! Parked runs: which are parked, and which return to their queues. See [`limit`](super::limit).

use std::collections::BTreeMap;
use std::time::Instant;

use sqlx::{Postgres, Transaction};
use time::OffsetDateTime;

use super::PostgresStore;
use super::limit::columns;
use super::limit_known::KnownSaga;
use super::query_ext::FetchExt;
use crate::model::limits::Rate;
use crate::store::limit::{PAGE_MAX, RecordedLimit, Return, Returned, Usage};
use crate::store::{Candidate, ClaimQueues, FreedKeys, LimitedRequest, QueueCursors, ReadPage};

/// The number of keys whose rate admits a parked run that one claim reads.
const DUE_KEYS_MAX: i64 = 100;

/// The number of idle keys that one claim deletes: more than it adds.
const IDLE_KEYS_MAX: i64 = 200;

impl PostgresStore {
    /// Returns parked runs to their queues: of the freed keys, and of those whose rate admits more. Returns whether anything has
    /// changed, and which page of keys it has gone through.
    pub(super) async fn return_parked(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        (limit, known): (&RecordedLimit, &mut KnownSaga),
        request: &LimitedRequest<'_>,
        returned: &mut Returned,
        cursors: &mut QueueCursors,
    ) -> sqlx::Result<(bool, ReadPage)> {
        let began = Instant::now();
        let (saga, rate, queues) = (&limit.of.saga, limit.rate_by_key(), &request.queue.queues);
        let FreedKeys { keys, page_from } = request.freed;
        let (mut keys, mut next_page) = (keys.clone(), None);
        if let Some(from) = page_from {
            let mut page = self.parked_keys(tx, limit, queues, from).await?;
            if page.len() > PAGE_MAX {
                next_page = page.pop().map(|(key, _)| key);
            }
            page.iter().for_each(|(key, _)| known.find_parked(key));
            keys.extend(page.into_iter().filter(|(_, waits_for_rate)| !waits_for_rate).map(|(key, _)| key));
        }
        if rate.is_some() {
            let due = sqlx::query_scalar(self.sql.rate_due.clone()).bind(saga).bind(DUE_KEYS_MAX);
            keys.extend(due.all_on(tx).await?);
        }
        keys.sort_unstable();
        keys.dedup();
        let mut is_changed = false;
        if !keys.is_empty() {
            let mut usage = self.usage(tx, (limit, queues), known, &keys).await?;
            let returns = usage.returns(limit, returned, keys);
            returned.add(&returns);
            let runs = self.unpark(tx, queues, &returns, (known, cursors)).await?;
            let change = |it: &Return| (it.key.clone(), it.change(runs.get(&it.key).copied().unwrap_or(0)));
            let changes = returns.iter().map(change).collect();
            is_changed = !runs.is_empty();
            if rate.is_some() {
                is_changed |= self.record_begun(tx, limit, &mut usage, changes).await?;
            }
        }
        if rate.is_some() && (is_changed || page_from.is_some()) {
            let delete = sqlx::query(self.sql.rate_delete_idle.clone()).bind(saga).bind(IDLE_KEYS_MAX);
            is_changed |= delete.execute(&mut **tx).await?.rows_affected() > 0;
        }
        Ok((is_changed, ReadPage { next: next_page, time: began.elapsed() }))
    }

    /// The keys of a page with parked runs, with whether these wait for the rate alone, and the first key of the next page.
    pub(super) async fn parked_keys(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        limit: &RecordedLimit,
        queues: &ClaimQueues,
        from: &str,
    ) -> sqlx::Result<Vec<(String, bool)>> {
        let list = sqlx::query_as(self.sql.limit_list_keys.clone());
        let list = list.bind(&queues.topics).bind(&queues.handlers).bind(&queues.reserved_for).bind(from);
        list.bind(i64::try_from(PAGE_MAX + 1).unwrap_or(i64::MAX))
            .bind(&limit.of.saga)
            .bind(limit.rate_by_key().map_or(0, Rate::longest_wait_ms))
            .all_on(tx)
            .await
    }

    /// Puts these parked runs back into their queues, as many as their keys admit: they come before candidates of their key that
    /// became ready later. The end of a run before them may not have been noticed yet. Returns whether there were any.
    pub(super) async fn return_earlier(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        (limit, queues): (&RecordedLimit, &ClaimQueues),
        usage: &mut Usage,
        returns: &[Return],
        known: (&mut KnownSaga, &mut QueueCursors),
    ) -> sqlx::Result<bool> {
        let runs = self.unpark(tx, queues, returns, known).await?;
        if limit.rate_by_key().is_some() && !runs.is_empty() {
            let change = |it: &Return| Some((it.key.clone(), it.change(*runs.get(&it.key)?)));
            let changes = returns.iter().filter_map(change).collect();
            self.record_begun(tx, limit, usage, changes).await?;
        }
        Ok(!runs.is_empty())
    }

    /// Puts so many parked runs of each of these keys back into their queues, and lowers the positions to them. Returns how many runs
    /// of each key there were.
    pub(super) async fn unpark(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        queues: &ClaimQueues,
        returns: &[Return],
        (known, cursors): (&mut KnownSaga, &mut QueueCursors),
    ) -> sqlx::Result<BTreeMap<String, i64>> {
        let (mut keys, mut runs_max, mut since) = (vec![], vec![], vec![]);
        for Return { key, runs_max: count, .. } in returns.iter().filter(|it| it.runs_max > 0) {
            if let Some(parked_since) = known.parked_since(key) {
                keys.push(key.clone());
                runs_max.push(*count);
                // A forged time may be earlier than any that can be bound.
                since.push(parked_since.filter(|at| *at > OffsetDateTime::UNIX_EPOCH));
            }
        }
        if keys.is_empty() {
            return Ok(BTreeMap::new());
        }
        let unpark = sqlx::query_as(self.sql.limit_unpark.clone());
        let unpark = unpark.bind(&queues.topics).bind(&queues.handlers).bind(&queues.reserved_for);
        let unpark = unpark.bind(&keys).bind(&runs_max).bind(since).bind(&queues.begun_only);
        let rows: Vec<(String, i64, OffsetDateTime, OffsetDateTime)> = unpark.all_on(tx).await?;
        let mut runs = BTreeMap::new();
        for (key, count, since, last) in rows {
            cursors.lower(since);
            known.add_returned(since);
            runs.insert(key, (count, last));
        }
        for (key, runs_max) in keys.iter().zip(runs_max) {
            let found = runs.get(key);
            let last = found.map(|(_, last)| *last);
            known.returned(key, last, found.is_some_and(|(count, _)| *count >= runs_max));
        }
        Ok(runs.into_iter().map(|(key, (count, _))| (key, count)).collect())
    }

    /// Parks runs. Returns their number, and the queue time of the first of each key.
    pub(super) async fn park(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        runs: &[(Candidate, String)],
    ) -> sqlx::Result<(i64, BTreeMap<String, OffsetDateTime>)> {
        if runs.is_empty() {
            return Ok((0, BTreeMap::new()));
        }
        let (roots, ids, keys) = columns(runs);
        let park = sqlx::query_as(self.sql.limit_park.clone()).bind(roots).bind(ids).bind(keys);
        let parked: Vec<(String, i64, OffsetDateTime)> = park.all_on(tx).await?;
        let count = parked.iter().map(|(_, count, _)| count).sum();
        Ok((count, parked.into_iter().map(|(key, _, since)| (key, since)).collect()))
    }
}
