//! What a process knows of a saga with limits, from claim to claim: the runs that count, and the keys with parked runs.
//!
//! The indexes of running and of parked runs have an entry of each run that has ended or returned, until a vacuum removes it, which an
//! open transaction prevents. So a claim reads what other claims have done since the last one of this process (`limit_log`), looks up
//! by its id whether a run still counts, and looks for parked runs only where there are some.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::{Postgres, Row, Transaction};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::query_ext::FetchExt;
use crate::store::limit::{PAGE_MAX, RecordedLimit};
use crate::store::{ClaimQueues, LimitedSaga};
use crate::util::sync::lock;

/// The number of rows about a saga that are kept at least. A process that has missed more reads all running runs.
const KNOWN_MAX: i64 = 10_000;

/// Ended runs that no claim asks for are forgotten when there are so many, and as many as others.
const STALE_MAX: usize = 1_000;

/// A queue time from which on there may be runs; none for the beginning.
type Since = Option<OffsetDateTime>;

#[derive(Debug, Default)]
pub(super) struct KnownSaga {
    topology: i64,
    /// Whether the runs that count were read once, and whether the keys with parked runs were.
    is_read: bool,
    are_keys_read: bool,
    /// The number of the newest known row; none if there is none.
    newest: Option<i64>,
    /// The rows before this one are deleted.
    oldest: i64,
    /// The runs that count for the concurrency. Some may have ended since.
    running: Counted,
    /// The length of `running` when all of it was last read.
    looked_up: usize,
    /// The keys with parked runs, and since when.
    parked: HashMap<String, Since>,
    /// Whether other keys may have parked runs as well.
    has_more_keys: bool,
    /// Since when runs are ready that other processes have returned to their queues.
    returned_by_others: Since,
    /// Since when runs are ready that this process has returned, until that is recorded.
    returned: Since,
}

/// Runs, by the keys under which they count, with their roots.
#[derive(Debug, Default)]
struct Counted {
    by_key: HashMap<String, HashMap<Uuid, Uuid>>,
    key_of: HashMap<Uuid, String>,
}

impl Counted {
    fn len(&self) -> usize {
        self.key_of.len()
    }

    /// The runs of a key, as roots, ids and keys.
    fn under<'a>(&'a self, key: &'a str) -> impl Iterator<Item = (Uuid, Uuid, String)> + 'a {
        let runs = self.by_key.get(key).into_iter().flatten();
        runs.map(move |(id, root)| (*root, *id, key.to_owned()))
    }

    fn insert(&mut self, id: Uuid, root: Uuid, key: String) {
        self.remove(id);
        self.by_key.entry(key.clone()).or_default().insert(id, root);
        self.key_of.insert(id, key);
    }

    fn remove(&mut self, id: Uuid) {
        let Some(key) = self.key_of.remove(&id) else { return };
        if let Some(runs) = self.by_key.get_mut(&key) {
            runs.remove(&id);
            if runs.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }
}

/// The changes by a claim.
#[derive(Default)]
pub(super) struct ClaimChanges {
    /// The runs that it has taken, each with its root and key.
    pub(super) taken: Vec<(Uuid, Uuid, String)>,
    /// The keys of which it has parked runs, with the queue time of the first one.
    pub(super) parked: BTreeMap<String, OffsetDateTime>,
}

impl KnownSaga {
    /// The number of runs that count by key, or with an empty key of all.
    fn count(&self, keys: Option<&HashSet<&str>>) -> BTreeMap<String, i64> {
        let stored = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let Some(keys) = keys else {
            return [(String::new(), stored(self.running.len()))].into();
        };
        keys.iter().map(|key| ((*key).to_owned(), stored(self.running.under(key).count()))).collect()
    }

    /// The runs to be looked up for these keys, and whether these are all.
    fn unread(&self, keys: Option<&HashSet<&str>>) -> (Vec<(Uuid, Uuid, String)>, bool) {
        match keys.filter(|_| self.running.len() <= 2 * self.looked_up + STALE_MAX) {
            Some(keys) => (keys.iter().flat_map(|key| self.running.under(key)).collect(), false),
            None => (self.running.by_key.keys().flat_map(|key| self.running.under(key)).collect(), true),
        }
    }

    pub(super) fn parked_since(&self, key: &str) -> Option<Since> {
        self.parked.get(key).copied().or(self.has_more_keys.then_some(None))
    }

    pub(super) fn add_parked(&mut self, key: String, since: Since) {
        let known = self.parked.entry(key).or_insert(since);
        *known = since.min(*known);
    }

    /// Notes that a scan at all keys has found this one, of which no runs may be known.
    pub(super) fn find_parked(&mut self, key: &str) {
        if !self.parked.contains_key(key) {
            self.parked.insert(key.to_owned(), None);
        }
    }

    /// Forgets since when runs are parked, for a full scan: one that another transaction had locked may be earlier. If
    /// too many keys are known, or not all are, everything is read again.
    pub(super) fn rescan(&mut self) {
        self.parked.values_mut().for_each(|since| *since = None);
        self.are_keys_read &= !self.has_more_keys && self.parked.len() <= STALE_MAX;
    }

    /// Since when runs are ready that other processes have returned: the next scan has to begin there.
    pub(super) fn take_returned_by_others(&mut self) -> Since {
        self.returned_by_others.take()
    }

    /// Notes since when runs are ready that this process has returned.
    pub(super) fn add_returned(&mut self, since: OffsetDateTime) {
        self.returned = Some(self.returned.map_or(since, |known| known.min(since)));
    }

    /// Notes that runs of this key have returned, the last one with this queue time, and whether others may be left.
    pub(super) fn returned(&mut self, key: &str, last: Since, are_left: bool) {
        match self.parked.get_mut(key) {
            Some(since) if are_left => *since = last.max(*since),
            Some(_) => drop(self.parked.remove(key)),
            None => {}
        }
    }
}

impl PostgresStore {
    /// What this process knows of a saga. A claim takes it, and gives it back at its end ([`Self::store_known`]): so nothing is known
    /// after a claim that failed, which may have been made.
    pub(super) fn take_known(&self, of: &LimitedSaga, topology: i64) -> KnownSaga {
        let known = lock(&self.known).remove(&of.saga).filter(|known| known.topology == topology);
        known.unwrap_or_else(|| KnownSaga { topology, ..KnownSaga::default() })
    }

    pub(super) fn store_known(&self, of: &LimitedSaga, known: KnownSaga) {
        lock(&self.known).insert(of.saga.clone(), known);
    }

    /// Follows what claims have done, and returns the number of runs that count under each of these keys; without keys of all, under
    /// an empty one.
    pub(super) async fn follow_claims(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        (limit, queues): (&RecordedLimit, &ClaimQueues),
        known: &mut KnownSaga,
        keys: Option<&[String]>,
    ) -> sqlx::Result<BTreeMap<String, i64>> {
        let keys = keys.map(|keys| keys.iter().map(String::as_str).collect::<HashSet<_>>());
        let keys = keys.as_ref();
        if !self.follow_known(tx, limit, known, keys).await? {
            self.read_running(tx, limit, known).await?;
            known.are_keys_read = false;
        }
        if limit.is_by_key() && !known.are_keys_read {
            let page = self.parked_keys(tx, limit, queues, "").await?;
            known.has_more_keys = page.len() > PAGE_MAX;
            known.parked = page.into_iter().map(|(key, _)| (key, None)).collect();
            known.are_keys_read = true;
        }
        Ok(known.count(keys))
    }

    /// Follows what claims have done since the newest known row. Returns whether that is still there.
    async fn follow_known(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        limit: &RecordedLimit,
        known: &mut KnownSaga,
        keys: Option<&HashSet<&str>>,
    ) -> sqlx::Result<bool> {
        if !known.is_read {
            return Ok(false);
        }
        let newest = known.newest;
        let (asked, are_all) = known.unread(keys);
        let (mut roots, mut ids, mut their_keys) = (vec![], vec![], vec![]);
        for (root, id, key) in asked {
            roots.push(root);
            ids.push(id);
            their_keys.push(key);
        }
        let follow =
            sqlx::query(self.sql.limit_follow.clone()).bind(&limit.of.saga).bind(newest.unwrap_or(i64::MIN));
        let rows = follow.bind(roots).bind(ids).bind(their_keys).bind(limit.serial).all_on(tx).await?;
        let (mut is_there, mut new) = (newest.is_none(), 0);
        // Known runs first, then what claims have done, in their order: a run may be claimed again under another key.
        for row in &rows {
            let (number, key): (Option<i64>, String) = (row.try_get("number")?, row.try_get("key")?);
            is_there |= number.is_some() && number == newest;
            new += i64::from(number.is_some());
            known.newest = known.newest.max(number);
            let (root, id): (Option<Uuid>, Option<Uuid>) = (row.try_get("root")?, row.try_get("id")?);
            if number == newest && number.is_some() {
                continue;
            }
            if row.try_get("have_returned")? {
                let since: OffsetDateTime = row.try_get("ready_at")?;
                known.returned_by_others =
                    Some(known.returned_by_others.map_or(since, |known| known.min(since)));
                continue;
            }
            match (root.zip(id), row.try_get("counts")?) {
                (Some((root, id)), true) => known.running.insert(id, root, key),
                (Some((_, id)), false) => known.running.remove(id),
                (None, _) => known.add_parked(key, row.try_get("parked_since")?),
            }
        }
        if are_all {
            known.looked_up = known.running.len();
        }
        // The first ones of so many may have been deleted.
        Ok(is_there && new < KNOWN_MAX)
    }

    async fn read_running(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        limit: &RecordedLimit,
        known: &mut KnownSaga,
    ) -> sqlx::Result<()> {
        let counted = limit.concurrency.map_or(&[][..], |_| &limit.of.handlers);
        let read =
            sqlx::query(self.sql.limit_running.clone()).bind(&limit.of.saga).bind(counted).bind(limit.serial);
        let rows = read.all_on(tx).await?;
        known.newest = rows.first().map(|row| row.try_get("number")).transpose()?.flatten();
        known.running = Counted::default();
        let is_by_key = limit.concurrency_by_key().is_some();
        for row in &rows {
            let (id, key): (Option<Uuid>, Option<String>) = (row.try_get("id")?, row.try_get("key")?);
            // One without a key was claimed before there was a limit by key.
            if let Some(id) = id.filter(|_| !is_by_key || key.is_some()) {
                known.running.insert(id, row.try_get("root")?, key.unwrap_or_default());
            }
        }
        (known.looked_up, known.is_read) = (known.running.len(), true);
        Ok(())
    }

    pub(super) async fn record_claim(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        limit: &RecordedLimit,
        known: &mut KnownSaga,
        ClaimChanges { mut taken, parked }: ClaimChanges,
    ) -> sqlx::Result<()> {
        if limit.concurrency.is_none() {
            taken.clear();
        }
        let returned = known.returned.take();
        if taken.is_empty() && parked.is_empty() && returned.is_none() {
            return Ok(());
        }
        let (mut roots, mut ids, mut keys, mut since) = (vec![], vec![], vec![], vec![]);
        for (root, id, key) in taken {
            roots.push(Some(root));
            ids.push(Some(id));
            keys.push(key.clone());
            since.push(None);
            known.running.insert(id, root, key);
        }
        for (key, at) in parked {
            roots.push(None);
            ids.push(None);
            keys.push(key.clone());
            since.push(Some(at));
            known.add_parked(key, Some(at));
        }
        let mut ready_at = vec![None; keys.len()];
        if returned.is_some() {
            roots.push(None);
            ids.push(None);
            keys.push(String::new());
            since.push(None);
            ready_at.push(returned);
        }
        let saga = &limit.of.saga;
        let record = sqlx::query_scalar(self.sql.limit_record.clone()).bind(saga).bind(known.newest);
        let record = record.bind(roots).bind(ids).bind(keys).bind(since).bind(ready_at);
        let numbers: Vec<i64> = record.all_on(tx).await?;
        known.newest = numbers.into_iter().max();
        let last = known.newest.unwrap_or_default() - KNOWN_MAX;
        if last > known.oldest + KNOWN_MAX {
            let forget = sqlx::query(self.sql.limit_forget.clone()).bind(saga);
            forget.bind(known.oldest).bind(last).execute(&mut **tx).await?;
            known.oldest = last + 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(count: u128) -> KnownSaga {
        let mut known = KnownSaga::default();
        for number in 0..count {
            known.running.insert(Uuid::from_u128(number), Uuid::nil(), (number % 2).to_string());
        }
        known
    }

    #[test]
    fn runs_are_counted_under_the_asked_keys_or_together() {
        let known = running(5);
        let counts = known.count(Some(&["1", "2"].into()));
        assert_eq!(counts, [("1".into(), 2), ("2".into(), 0)].into());
        assert_eq!(known.count(None), [(String::new(), 5)].into());
    }

    #[test]
    fn runs_of_the_asked_keys_are_looked_up_and_at_times_all() {
        let keys = ["1"].into();
        let looked_up = |count| {
            let (asked, are_all) = running(count).unread(Some(&keys));
            (asked.len(), are_all)
        };
        assert_eq!(looked_up(1_000), (500, false));
        assert_eq!(looked_up(1_001), (1_001, true));
    }

    #[test]
    fn parked_runs_are_looked_for_where_some_are_left() {
        let at = |seconds| OffsetDateTime::from_unix_timestamp(seconds).ok();
        let mut known = KnownSaga::default();
        assert_eq!(known.parked_since("a"), None);
        known.add_parked("a".into(), at(5));
        known.add_parked("a".into(), at(7));
        assert_eq!(known.parked_since("a"), Some(at(5)));
        known.returned("a", at(6), true);
        assert_eq!(known.parked_since("a"), Some(at(6)));
        known.add_parked("a".into(), at(2));
        assert_eq!(known.parked_since("a"), Some(at(2)), "one that is earlier was parked later");
        known.returned("a", at(8), false);
        assert_eq!(known.parked_since("a"), None);
        known.has_more_keys = true;
        assert_eq!(known.parked_since("a"), Some(None), "it may be one of the keys that were not read");
    }

    #[test]
    fn look_at_whole_queues_begins_at_the_first_parked_run_and_with_few_keys() {
        let at = OffsetDateTime::from_unix_timestamp(5).ok();
        let mut known = KnownSaga { are_keys_read: true, ..KnownSaga::default() };
        known.add_parked("a".into(), at);
        known.rescan();
        assert_eq!((known.parked_since("a"), known.are_keys_read), (Some(None), true));
        known.has_more_keys = true;
        known.rescan();
        assert!(!known.are_keys_read);
        let keys = (0..=STALE_MAX).map(|key| (key.to_string(), at)).collect();
        let mut known = KnownSaga { are_keys_read: true, parked: keys, ..KnownSaga::default() };
        known.rescan();
        assert!(!known.are_keys_read);
    }
}
