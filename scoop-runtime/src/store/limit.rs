//! The limits of sagas, and claims under them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use super::queue_cursors::QueueCursors;
use super::queue_limit::QUEUE_MAX;
use super::rate::{RateState, seconds_between};
use super::types::{ClaimedRun, Claimer, Suspect, Unclaimed};
#[cfg(feature = "in-memory")]
use crate::model::limits::HandlerLimits;
use crate::model::limits::{Limit, Limits, Rate};
use crate::store::claim_queues::ClaimQueues;

#[derive(Clone, Debug)]
pub(crate) struct SagaLimit {
    pub(crate) saga: String,
    pub(crate) was: Vec<String>,
    pub(crate) limits: Limits,
}

/// A saga with limits: its newest name, and all of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitedSaga {
    pub(crate) saga: String,
    /// In a [`Topology`](super::Topology) those of the program that reads it.
    pub(crate) handlers: Vec<String>,
    /// The field or function of the program that decides, from which the keys come; empty if all have the same key. None without keys.
    pub(crate) key_from: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedLimit {
    pub(crate) of: LimitedSaga,
    /// How many runs are executed at once.
    pub(crate) concurrency: Option<Limit<u32>>,
    /// Whether a run counts for that until its end.
    pub(crate) serial: bool,
    /// How many runs begin within a period.
    pub(crate) rate: Option<Limit<Rate>>,
    /// How many runs may wait for a worker when a message is launched.
    pub(crate) queue: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LimitedQueue {
    pub(crate) of: LimitedSaga,
    pub(crate) queues: ClaimQueues,
}

/// What a worker asks for of a saga with a limit.
#[derive(Clone, Copy)]
pub(crate) struct LimitedRequest<'a> {
    pub(crate) claimer: Claimer<'a>,
    pub(crate) queue: &'a LimitedQueue,
    /// How many runs it takes; none if it only returns parked ones to their queues.
    pub(crate) slots: usize,
    /// The only run that it takes.
    pub(crate) suspect: Option<&'a Suspect>,
    pub(crate) freed: &'a FreedKeys,
    /// The positions in the queues from which on it looks at ready runs.
    pub(crate) cursors: &'a QueueCursors,
    /// The key of a run. None if the program of the worker does not compute the keys of this limit, since it is from before the
    /// limit: such runs count together, and are not parked, so that other programs find them in their queues.
    pub(crate) key_of: &'a (dyn Fn(&Candidate) -> Option<String> + Send + Sync),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreedKeys {
    /// The keys of runs that have ended.
    pub(crate) keys: Vec<String>,
    /// The keys from this one on, up to [`PAGE_MAX`] of them: runs may have ended in processes that died.
    pub(crate) page_from: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct ReadPage {
    /// The key from which the next page begins, if there is one.
    pub(crate) next: Option<String>,
    pub(crate) time: Duration,
}

/// A due run that may be claimed, as far as its key follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) root: Uuid,
    pub(crate) id: Uuid,
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) payload: Value,
    /// The key under which it was claimed the last time, if it is not parked.
    pub(crate) serial_key: Option<String>,
    /// Whether it has never begun, and will not: nothing of it is executed.
    pub(crate) ends_unbegun: bool,
}

#[derive(Debug, Default)]
pub(crate) struct LimitedClaim {
    pub(crate) runs: Vec<Result<ClaimedRun, Unclaimed>>,
    pub(crate) is_full: bool,
    /// Whether another transaction had locked the limit: then nothing was claimed, and the freed keys were not looked at.
    pub(crate) is_locked: bool,
    /// Whether a limit of the saga admits no further run.
    pub(crate) is_reached: bool,
    /// In how many seconds the rate admits a further run, if runs may wait for that.
    pub(crate) opens_in: Option<f64>,
    pub(crate) page: ReadPage,
    /// The positions from which the next claim looks; none if this one has not looked.
    pub(crate) cursors: Option<QueueCursors>,
}

/// What counts for the limits of a saga, read under their lock. The empty key is that of the saga where a limit is not by key.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// The number of runs that count for the concurrency, by key.
    pub(crate) running: BTreeMap<String, i64>,
    /// The time in microseconds since 1970.
    pub(crate) now: i64,
    pub(crate) rates: BTreeMap<String, RateState>,
}

/// How many runs each limit by key admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyCapacity {
    pub(crate) concurrency: i64,
    pub(crate) rate: i64,
}

/// Parked runs of a key that return to their queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Return {
    pub(crate) key: String,
    /// The maximum number of runs.
    pub(crate) runs_max: i64,
    /// Whether the rate admits no more than these, but the concurrency does.
    is_limited_by_rate: bool,
}

/// The runs of a claim, each with its key.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    pub(crate) runs: Vec<(Candidate, String)>,
    /// Those whose key has reached its concurrency or its rate.
    pub(crate) over: Vec<(Candidate, String)>,
    /// The keys of these that wait for the rate alone: no end of a run returns them to their queues.
    pub(crate) limited_by_rate: BTreeSet<String>,
}

/// A recorded limit has no more names than this, and so many bytes of them: as its table demands.
const NAMES_MAX: usize = 1_000;
const NAMES_BYTES_MAX: usize = 262_144;

/// What changes in the recorded limits when a program with a saga starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitChange {
    pub(crate) saga: String,
    /// The names of the saga in this program. Recorded limits whose saga has one of these are deleted, and others lose these names.
    pub(crate) own_names: Vec<String>,
    /// All names of the saga, also those that programs with former names have recorded.
    pub(crate) all_names: Vec<String>,
    /// How many recorded names are left out, since they are too many.
    pub(crate) left_out: usize,
    /// The handlers whose parked runs return to their queues: those that need other keys now, or none.
    pub(crate) unparked_handlers: Vec<String>,
    /// The name of the saga whose begun runs count for the rate to record.
    pub(crate) keeps_rates_of: Option<String>,
    /// The limits to record, if the saga has any.
    pub(crate) record: Option<RecordedLimit>,
}

/// The number of parked runs of a key that return to their queue at once.
const RETURNS_MAX: i64 = 100;

/// The number of keys with parked runs in one page. A claim goes through one of them, since it holds the lock of the limit meanwhile.
pub(crate) const PAGE_MAX: usize = 1_000;

impl RecordedLimit {
    #[cfg(feature = "in-memory")]
    pub(crate) fn is_of_claims(&self) -> bool {
        self.concurrency.is_some() || self.rate.is_some()
    }

    pub(crate) fn is_by_key(&self) -> bool {
        self.concurrency_by_key().is_some() || self.rate_by_key().is_some()
    }

    /// Whether a run needs no capacity: nothing of it is executed, or runs are serial, and it has that of its key. For a rate, to
    /// give up is a beginning, too.
    fn lets_pass(&self, run: &Candidate, key: &str) -> bool {
        run.ends_unbegun && self.rate_by_key().is_none()
            || self.serial && run.serial_key.as_deref() == Some(key)
    }

    /// The key of a run, of which a program has computed this one. A serial run keeps that of its first claim until its end.
    pub(crate) fn key_of(&self, run: &Candidate, computed: Option<String>) -> String {
        let serial = run.serial_key.clone().filter(|_| self.serial || computed.is_none());
        serial.or(computed).unwrap_or_default()
    }

    /// The number of runs of each key that are executed at once.
    pub(crate) fn concurrency_by_key(&self) -> Option<u32> {
        self.concurrency.filter(|limit| limit.is_by_key).map(|limit| limit.most)
    }

    /// The number of runs of the saga that are executed at once.
    pub(crate) fn concurrency_of_saga(&self) -> Option<u32> {
        self.concurrency.filter(|limit| !limit.is_by_key).map(|limit| limit.most)
    }

    pub(crate) fn rate_by_key(&self) -> Option<Rate> {
        self.rate.filter(|limit| limit.is_by_key).map(|limit| limit.most)
    }

    pub(crate) fn rate_of_saga(&self) -> Option<Rate> {
        self.rate.filter(|limit| !limit.is_by_key).map(|limit| limit.most)
    }
}

impl Candidate {
    pub(crate) fn counted_key(&self, key: &str) -> Option<String> {
        (!self.ends_unbegun).then(|| key.to_owned())
    }
}

#[cfg(feature = "in-memory")]
impl From<&RecordedLimit> for HandlerLimits {
    fn from(limit: &RecordedLimit) -> Self {
        let RecordedLimit { of, concurrency, serial, rate, queue } = limit;
        let by = of.key_from.clone().filter(|by| !by.is_empty());
        Self { concurrency: *concurrency, serial: *serial, rate: *rate, queue: *queue, by }
    }
}

impl Usage {
    fn free_concurrency(&self, key: &str, most: u32) -> i64 {
        (i64::from(most) - self.running.get(key).copied().unwrap_or(0)).max(0)
    }

    fn free_rate(&self, key: &str, rate: Rate) -> i64 {
        let begun = self.rates.get(key).map(|state| state.window.capacity(rate, self.now));
        begun.unwrap_or(i64::from(rate.runs))
    }

    /// How many runs the limits of the saga admit that are not by key.
    pub(crate) fn capacity_of_saga(&self, limit: &RecordedLimit) -> usize {
        let concurrency = limit.concurrency_of_saga().map(|most| self.free_concurrency("", most));
        let rate = limit.rate_of_saga().map(|rate| self.free_rate("", rate));
        let free = concurrency.into_iter().chain(rate).min().unwrap_or(i64::MAX);
        usize::try_from(free).unwrap_or(usize::MAX)
    }

    pub(crate) fn capacity_of_key(&self, limit: &RecordedLimit, key: &str) -> KeyCapacity {
        let concurrency = limit.concurrency_by_key().map(|most| self.free_concurrency(key, most));
        let rate = limit.rate_by_key().map(|rate| self.free_rate(key, rate));
        KeyCapacity { concurrency: concurrency.unwrap_or(i64::MAX), rate: rate.unwrap_or(i64::MAX) }
    }

    /// In how many seconds the rate of the saga admits a further run, if it admits none now.
    pub(crate) fn saga_opens_in(&self, limit: &RecordedLimit) -> Option<f64> {
        let rate = limit.rate_of_saga()?;
        let state = self.rates.get("").filter(|_| self.free_rate("", rate) == 0)?;
        let opens_at = state.after(rate, self.now, 0, false).opens_at;
        Some(seconds_between(self.now, opens_at))
    }

    /// The parked runs of these keys that return to their queues, beside those that have returned.
    pub(crate) fn returns(
        &self,
        limit: &RecordedLimit,
        returned: &Returned,
        keys: impl IntoIterator<Item = String>,
    ) -> Vec<Return> {
        let of_key = |key: String| {
            let KeyCapacity { concurrency, rate } = self.capacity_of_key(limit, &key);
            let runs_max = concurrency.min(rate).min(RETURNS_MAX);
            let is_limited_by_rate = runs_max < concurrency;
            Return { runs_max: (runs_max - returned.get(&key)).max(0), key, is_limited_by_rate }
        };
        keys.into_iter().map(of_key).collect()
    }

    /// The states of the rate of these keys after runs have begun, and others were parked or returned: those that have changed.
    pub(crate) fn rates_after(&self, rate: Rate, changes: BTreeMap<String, RateChange>) -> RateStates {
        let after = |(key, RateChange { begun, has_parked }): (String, RateChange)| {
            let former = self.rates.get(&key);
            if begun == 0 && has_parked == Some(false) && former.is_none_or(|state| !state.has_parked) {
                return None;
            }
            let state = former.cloned().unwrap_or_default();
            let has_parked = has_parked.unwrap_or(state.has_parked);
            let state = state.after(rate, self.now, begun, has_parked);
            (former != Some(&state)).then_some((key, state))
        };
        changes.into_iter().filter_map(after).collect()
    }
}

pub(crate) type RateStates = BTreeMap<String, RateState>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateChange {
    pub(crate) begun: i64,
    /// Whether runs are parked until the rate admits them; none if that has not changed.
    pub(crate) has_parked: Option<bool>,
}

impl RateChange {
    /// So many runs have begun.
    pub(crate) fn begun(runs: usize) -> Self {
        Self { begun: i64::try_from(runs).unwrap_or(i64::MAX), has_parked: None }
    }
}

/// The number of parked runs of each key that a claim has returned and not claimed yet. A run may end while the claim is under
/// way: then its capacity is for the next parked run, and not for one that became ready later.
#[derive(Debug, Default)]
pub(crate) struct Returned(BTreeMap<String, i64>);

impl Returned {
    fn get(&self, key: &str) -> i64 {
        self.0.get(key).copied().unwrap_or(0)
    }

    /// Records the returned runs. Where there are fewer than the capacity, none is parked any more.
    pub(crate) fn add(&mut self, returns: &[Return]) {
        for it in returns {
            *self.0.entry(it.key.clone()).or_default() += it.runs_max;
        }
    }

    pub(crate) fn claim(&mut self, key: &str) {
        if let Some(runs_max) = self.0.get_mut(key) {
            *runs_max = (*runs_max - 1).max(0);
        }
    }
}

impl Return {
    pub(crate) fn change(&self, returned: i64) -> RateChange {
        let has_parked = self.is_limited_by_rate && returned >= self.runs_max;
        RateChange { begun: 0, has_parked: Some(has_parked) }
    }
}

impl Admitted {
    /// Divides candidates, in their order, until so many runs are admitted.
    pub(crate) fn divide(
        candidates: Vec<(Candidate, String)>,
        usage: &Usage,
        limit: &RecordedLimit,
        most: usize,
    ) -> Self {
        let (mut admitted, mut free_of) = (Self::default(), BTreeMap::new());
        for (candidate, key) in candidates {
            if admitted.runs.len() == most {
                break;
            }
            let free = free_of.entry(key.clone()).or_insert_with(|| usage.capacity_of_key(limit, &key));
            if limit.lets_pass(&candidate, &key) {
                admitted.runs.push((candidate, key));
            } else if free.concurrency > 0 && free.rate > 0 {
                (free.concurrency, free.rate) = (free.concurrency - 1, free.rate - 1);
                admitted.runs.push((candidate, key));
            } else {
                if free.concurrency > 0 {
                    admitted.limited_by_rate.insert(key.clone());
                }
                admitted.over.push((candidate, key));
            }
        }
        admitted
    }

    /// What changes for the rate when these runs have begun.
    pub(crate) fn rate_changes(&self, limit: &RecordedLimit) -> BTreeMap<String, RateChange> {
        let mut changes: BTreeMap<_, RateChange> = BTreeMap::new();
        if limit.rate_by_key().is_none() {
            if !self.runs.is_empty() {
                changes.insert(String::new(), RateChange::begun(self.runs.len()));
            }
            return changes;
        }
        for (_, key) in &self.runs {
            changes.entry(key.clone()).or_default().begun += 1;
        }
        for key in &self.limited_by_rate {
            changes.entry(key.clone()).or_default().has_parked = Some(true);
        }
        changes
    }
}

impl FreedKeys {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.page_from.is_none()
    }
}

impl SagaLimit {
    /// All names that it has here.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.was.iter().chain([&self.saga])
    }

    /// The limits to record under these names, if it has any.
    fn to_record(&self, handlers: Vec<String>) -> Option<RecordedLimit> {
        let Limits { concurrency, serial, rate, by, queue } = self.limits;
        if concurrency.is_none() && rate.is_none() && queue.is_none() {
            return None;
        }
        let queue = queue.map(|most| most.min(QUEUE_MAX));
        // As far as the columns go.
        let stored = |most: u32| most.min(i32::MAX.unsigned_abs());
        let concurrency = concurrency.map(|limit| Limit { most: stored(limit.most), ..limit });
        let rate = rate.map(|Limit { most: Rate { runs, period_ms }, is_by_key }| Limit {
            most: Rate { runs: stored(runs), period_ms: period_ms.min(i64::MAX.unsigned_abs()) },
            is_by_key,
        });
        let key_from = by.map(str::to_owned);
        let of = LimitedSaga { saga: self.saga.clone(), handlers, key_from };
        Some(RecordedLimit { of, concurrency, serial, rate, queue })
    }

    /// The name of the saga in these recorded limits of it whose begun runs count for the rate to record: its keys are the same.
    fn keeps_rates_of(&self, recorded: &[&RecordedLimit]) -> Option<String> {
        let Limits { rate, by, .. } = self.limits;
        let is_by_key = rate?.is_by_key;
        let is_matching = |it: &&&RecordedLimit| {
            let has_same_keys = !is_by_key || it.of.key_from.as_deref() == by;
            it.rate.is_some_and(|former| former.is_by_key == is_by_key) && has_same_keys
        };
        let mut matching: Vec<_> = recorded.iter().filter(is_matching).collect();
        matching.sort_by_key(|it| it.of.saga != self.saga);
        matching.first().map(|it| it.of.saga.clone())
    }

    /// What changes in these recorded limits, if anything does. A recorded name that is one of another saga of this program has been
    /// given to that one.
    fn change(&self, known: &[RecordedLimit], is_of_another: impl Fn(&str) -> bool) -> Option<LimitChange> {
        let own: BTreeSet<&String> = self.names().collect();
        let has_own_name = |it: &&RecordedLimit| it.of.handlers.iter().any(|name| own.contains(name));
        let (recorded, of_others): (Vec<_>, Vec<_>) =
            known.iter().filter(has_own_name).partition(|it| own.contains(&it.of.saga));
        let (mut all_names, mut left_out) = (own.clone(), 0);
        let inherited = recorded.iter().flat_map(|it| &it.of.handlers);
        all_names.extend(inherited.filter(|name| !is_of_another(name)));
        let bytes: usize = all_names.iter().map(|name| name.len()).sum();
        if all_names.len() > NAMES_MAX || bytes > NAMES_BYTES_MAX {
            left_out = all_names.len() - own.len();
            all_names.clone_from(&own);
        }
        let owned = |names: BTreeSet<&String>| names.into_iter().cloned().collect::<Vec<_>>();
        let all_names = owned(all_names);
        let record = self.to_record(all_names.clone());
        if of_others.is_empty() && recorded.iter().copied().eq(&record) {
            return None;
        }
        let of_recorded = recorded.iter().flat_map(|it| &it.of.handlers);
        let unparked = own.iter().copied().chain(of_recorded);
        let keeps = |name: &str| record.as_ref().is_some_and(|record| keeps_keys_of(name, record, known));
        let unparked_handlers = owned(unparked.filter(|name| !keeps(name)).collect());
        Some(LimitChange {
            saga: self.saga.clone(),
            all_names,
            left_out,
            unparked_handlers,
            keeps_rates_of: self.keeps_rates_of(&recorded),
            record,
            own_names: owned(own),
        })
    }
}

/// Whether parked runs of a handler have the keys that they need under the limits to record: those of all recorded limits of the handler
/// come from the same. Then they stay parked, since a claim under the new limits reads all keys with parked runs. To park a
/// backlog again would hold up the runs behind it.
fn keeps_keys_of(handler: &str, record: &RecordedLimit, known: &[RecordedLimit]) -> bool {
    let is_of = |it: &RecordedLimit| it.of.handlers.iter().any(|name| name == handler);
    let has_same_keys = |it: &RecordedLimit| it.is_by_key() && it.of.key_from == record.of.key_from;
    let mut former = known.iter().filter(|it| is_of(it)).peekable();
    record.is_by_key() && is_of(record) && former.peek().is_some() && former.all(has_same_keys)
}

impl LimitChange {
    /// What these sagas of one program change in the recorded limits, one after the other.
    pub(crate) fn of_all(limits: &[SagaLimit], mut known: Vec<RecordedLimit>) -> Vec<Self> {
        let named = limits.iter().flat_map(|limit| limit.names().map(move |name| (&**name, &*limit.saga)));
        let owners: BTreeMap<&str, &str> = named.collect();
        let mut changes = vec![];
        for limit in limits {
            let is_of_another = |name: &str| owners.get(name).is_some_and(|owner| *owner != limit.saga);
            if let Some(change) = limit.change(&known, is_of_another) {
                change.apply(&mut known);
                changes.push(change);
            }
        }
        changes
    }

    pub(crate) fn apply(&self, known: &mut Vec<RecordedLimit>) {
        let is_own = |name: &String| self.own_names.contains(name);
        known.retain(|it| !is_own(&it.of.saga));
        known.retain_mut(|it| {
            let had_names = !it.of.handlers.is_empty();
            it.of.handlers.retain(|name| !is_own(name));
            !(had_names && it.of.handlers.is_empty())
        });
        known.extend(self.record.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(saga: &str, handlers: &[&str], concurrency: u32) -> RecordedLimit {
        let handlers = handlers.iter().map(|name| (*name).to_owned()).collect();
        let of = LimitedSaga { saga: saga.to_owned(), handlers, key_from: None };
        RecordedLimit { of, ..limits(Limits::NONE.concurrency(concurrency)) }
    }

    fn limits(limits: Limits) -> RecordedLimit {
        limit("s", &[], limits).to_record(vec!["s".into()]).expect("it has limits")
    }

    fn limit(saga: &str, was: &[&str], limits: Limits) -> SagaLimit {
        let was = was.iter().map(|name| (*name).to_owned()).collect();
        SagaLimit { saga: saga.to_owned(), was, limits }
    }

    #[test]
    fn place_that_becomes_free_during_a_claim_is_for_the_next_parked_run() {
        let limit = limits(Limits::NONE.concurrency_by(2, "key"));
        let key = || ["k".to_owned()];
        let running = |runs| Usage { running: [("k".to_owned(), runs)].into(), ..Usage::default() };
        let mut returned = Returned::default();
        let runs_max = |usage: Usage, returned: &mut Returned| {
            let returns = usage.returns(&limit, returned, key());
            returned.add(&returns);
            returns[0].runs_max
        };
        assert_eq!(runs_max(running(2), &mut returned), 0, "all are taken");
        assert_eq!(runs_max(running(1), &mut returned), 1, "a run has ended");
        assert_eq!(runs_max(running(1), &mut returned), 0, "a run has returned for that place");
        assert_eq!(runs_max(running(0), &mut returned), 1, "another run has ended");
        returned.claim("k");
        assert_eq!(runs_max(running(1), &mut returned), 0, "one has returned, and one is claimed");
        returned.claim("k");
        assert_eq!(runs_max(running(1), &mut returned), 1, "both are claimed, and one of them has ended");
    }

    fn after(limits: &[SagaLimit], known: &[RecordedLimit]) -> Vec<RecordedLimit> {
        let mut after = known.to_vec();
        LimitChange::of_all(limits, known.to_vec()).iter().for_each(|change| change.apply(&mut after));
        assert!(LimitChange::of_all(limits, after.clone()).is_empty(), "the next start changes nothing");
        after.sort_by(|one, other| one.of.saga.cmp(&other.of.saga));
        after
    }

    #[test]
    fn limit_of_a_renamed_saga_replaces_those_of_its_names() {
        let known = [recorded("b", &["a", "b"], 2), recorded("x", &["x"], 1)];
        let is_outdated = |of: SagaLimit| !LimitChange::of_all(&[of], known.to_vec()).is_empty();
        assert!(!is_outdated(limit("b", &["a"], Limits::NONE.concurrency(2))));
        let renamed = limit("c", &["b"], Limits::NONE.concurrency(2));
        assert_eq!(after(&[renamed], &known), [recorded("c", &["a", "b", "c"], 2), recorded("x", &["x"], 1)]);
        assert!(is_outdated(limit("b", &["a"], Limits::NONE.concurrency_by(2, "key"))));
        assert!(is_outdated(limit("b", &["a"], Limits::NONE.concurrency(2).rate(5, 1_000))));
        assert!(is_outdated(limit("b", &["a"], Limits::NONE.concurrency(2).queue(9))));
    }

    #[test]
    fn former_name_that_another_saga_has_now_leaves_the_limit() {
        let known = [recorded("a", &["a", "c"], 2)];
        let of_a = || limit("a", &[], Limits::NONE.concurrency(2));
        let (unlimited, own) =
            (|| limit("c", &[], Limits::NONE), || limit("c", &[], Limits::NONE.concurrency(5)));
        let (alone, other) = (recorded("a", &["a"], 2), recorded("c", &["c"], 5));
        assert_eq!(after(&[of_a(), unlimited()], &known), std::slice::from_ref(&alone));
        assert_eq!(after(&[unlimited(), of_a()], &known), std::slice::from_ref(&alone));
        assert_eq!(after(&[of_a(), own()], &known), [alone.clone(), other.clone()]);
        assert_eq!(after(&[own(), of_a()], &known), [alone.clone(), other.clone()]);
        // Of two programs.
        assert_eq!(after(&[unlimited()], &known), std::slice::from_ref(&alone));
        let both = after(&[own()], &known);
        assert_eq!(both, [alone, other]);
        assert_eq!(after(&[of_a()], &both), both);
        // No other saga has the name.
        assert_eq!(after(&[of_a()], &known), known);
    }

    #[test]
    fn runs_and_rates_of_a_saga_stay_when_another_one_takes_its_former_name() {
        let known = vec![RecordedLimit {
            rate: limits(Limits::NONE.rate(5, 1_000)).rate,
            ..recorded("a", &["a", "c"], 2)
        }];
        let new = limit("c", &[], Limits::NONE.rate(5, 1_000));
        let changes = LimitChange::of_all(&[new], known);
        let [change] = &changes[..] else { panic!("{changes:?}") };
        let c = ["c".to_owned()];
        assert_eq!(
            (&change.own_names[..], &change.all_names[..], &change.unparked_handlers[..]),
            (&c[..], &c[..], &c[..])
        );
        assert_eq!(change.keeps_rates_of, None);
    }

    #[test]
    fn names_that_are_too_many_to_be_recorded_are_left_out() {
        let forged = |saga: &str, others: usize| {
            let names: Vec<_> = (0..others).map(|n| format!("{saga}-{n}")).collect();
            let names: Vec<_> = names.iter().map(|name| &**name).chain([saga, "own"]).collect();
            recorded(saga, &names, 9)
        };
        let own = || limit("own", &["z"], Limits::NONE.concurrency(2));
        let known = vec![forged("own", 600), forged("z", 600)];
        let changes = LimitChange::of_all(&[own()], known.clone());
        assert_eq!(changes.iter().map(|change| change.left_out).collect::<Vec<_>>(), [1_200]);
        assert_eq!(after(&[own()], &known), [recorded("own", &["own", "z"], 2)]);
        let long = recorded("own", &["own", &"x".repeat(NAMES_BYTES_MAX)], 2);
        assert_eq!(after(&[own()], &[long]), [recorded("own", &["own", "z"], 2)]);
        let few = recorded("own", &["former", "own"], 2);
        assert_eq!(after(&[own()], &[few]), [recorded("own", &["former", "own", "z"], 2)]);
        // Of a saga that this program does not have, only the name leaves.
        let both = after(&[own()], &[forged("another", 600)]);
        assert_eq!(both.iter().map(|it| it.of.handlers.len()).collect::<Vec<_>>(), [601, 2]);
    }

    #[test]
    fn begun_runs_count_under_a_changed_rate_of_the_same_keys() {
        let record = |name: &str, limits| limit(name, &[], limits).to_record(vec![name.to_owned()]).unwrap();
        let rate = record("b", Limits::NONE.rate(5, 1_000));
        let by_key = record("c", Limits::NONE.rate_by(5, 1_000, "k"));
        let matching = |was: &[&str], limits| {
            let known = vec![rate.clone(), by_key.clone()];
            let changes = LimitChange::of_all(&[limit("d", was, limits)], known);
            changes[0].keeps_rates_of.clone()
        };
        assert_eq!(matching(&["b"], Limits::NONE.rate(9, 3_000)), Some("b".into()));
        assert_eq!(matching(&["c"], Limits::NONE.rate_by(9, 3_000, "k")), Some("c".into()));
        assert_eq!(matching(&["c"], Limits::NONE.rate_by(5, 1_000, "other")), None);
        assert_eq!(matching(&["b"], Limits::NONE.rate_by(5, 1_000, "k")), None);
        assert_eq!(matching(&["b"], Limits::NONE.concurrency(1)), None);
    }

    #[test]
    fn parked_runs_return_to_their_queues_unless_their_keys_stay_the_same() {
        let record = |name: &str, limits| limit(name, &[], limits).to_record(vec![name.to_owned()]).unwrap();
        let known = vec![
            record("b", Limits::NONE.concurrency_by(1, "k")),
            record("c", Limits::NONE.concurrency_by(1, "other")),
            record("d", Limits::NONE.concurrency(1)),
        ];
        let unparked = |saga: &str, was: &[&str], limits| {
            let changes = LimitChange::of_all(&[limit(saga, was, limits)], known.clone());
            changes[0].unparked_handlers.join(" ")
        };
        assert_eq!(unparked("b", &[], Limits::NONE.concurrency_by(2, "k")), "");
        assert_eq!(unparked("b", &[], Limits::NONE.rate_by(5, 1_000, "k")), "");
        assert_eq!(unparked("b", &[], Limits::NONE.concurrency_by(2, "other")), "b");
        assert_eq!(unparked("b", &[], Limits::NONE.concurrency(2)), "b");
        assert_eq!(unparked("b", &[], Limits::NONE), "b");
        assert_eq!(unparked("a", &["b"], Limits::NONE.concurrency_by(2, "k")), "a", "it had no limit");
        assert_eq!(unparked("b", &["c", "d"], Limits::NONE.concurrency_by(2, "k")), "c d");
    }

    #[test]
    fn removed_limit_is_deleted() {
        let known = [recorded("b", &["a", "b"], 2)];
        assert!(after(&[limit("b", &["a"], Limits::NONE)], &known).is_empty());
        assert_eq!(after(&[limit("y", &[], Limits::NONE)], &known), known);
    }

    fn candidate(id: u128) -> Candidate {
        let id = Uuid::from_u128(id);
        let (topic, handler) = ("t".into(), "h".into());
        Candidate {
            root: id,
            id,
            topic,
            handler,
            payload: Value::Null,
            serial_key: None,
            ends_unbegun: false,
        }
    }

    fn candidates<const N: usize>(keys: [&str; N]) -> Vec<(Candidate, String)> {
        (1..).zip(keys).map(|(id, key)| (candidate(id), key.to_owned())).collect()
    }

    fn ids(of: &[(Candidate, String)]) -> Vec<u128> {
        of.iter().map(|(it, _)| it.id.as_u128()).collect()
    }

    const PERIOD: u64 = 1_000;

    /// So many runs in execution, and so many that began just now, of each key.
    fn usage<const N: usize>(of_keys: [(&str, i64, i64); N]) -> Usage {
        let rate = Rate { runs: 1_000, period_ms: PERIOD };
        let rates = of_keys
            .map(|(key, _, begun)| (key.to_owned(), RateState::default().after(rate, 0, begun, false)));
        let running = of_keys.map(|(key, running, _)| (key.to_owned(), running));
        Usage { running: running.into(), now: 0, rates: rates.into() }
    }

    #[test]
    fn run_of_a_reached_key_holds_up_no_run_of_another_key() {
        let (limit, usage) = (limits(Limits::NONE.concurrency_by(2, "k")), usage([("a", 1, 9), ("c", 2, 0)]));
        let divide = |most| {
            let candidates = candidates(["a", "a", "b", "a", "b", "c"]);
            let Admitted { runs, over, limited_by_rate } = Admitted::divide(candidates, &usage, &limit, most);
            assert!(limited_by_rate.is_empty());
            (ids(&runs), ids(&over))
        };
        assert_eq!(divide(10), (vec![1, 3, 5], vec![2, 4, 6]));
        assert_eq!(divide(2), (vec![1, 3], vec![2]), "those behind stay in their queue");
    }

    #[test]
    fn serial_run_that_has_its_turn_or_never_begins_needs_no_place() {
        let (limit, usage) = (limits(Limits::NONE.serial_by("k")), usage([("a", 1, 0), ("b", 1, 0)]));
        let mut candidates = candidates(["a", "a", "a", "b", "c", "c"]);
        candidates[1].0.serial_key = Some("a".into());
        candidates[2].0.ends_unbegun = true;
        candidates[3].0.serial_key = Some("its former key".into());
        let admitted = Admitted::divide(candidates, &usage, &limit, 10);
        assert_eq!((ids(&admitted.runs), ids(&admitted.over)), (vec![2, 3, 5], vec![1, 4, 6]));
        let counted = admitted.runs.iter().map(|(run, key)| run.counted_key(key)).collect::<Vec<_>>();
        assert_eq!(counted, [Some("a".into()), None, Some("c".into())], "what never begins takes no turn");
    }

    #[test]
    fn run_has_to_be_admitted_by_concurrency_and_rate() {
        let limit = limits(Limits::NONE.concurrency_by(2, "k").rate_by(3, PERIOD, "k"));
        // Of these two, the first is below its concurrency and has reached its rate; with the second it is the other way round.
        let usage = usage([("a", 1, 3), ("b", 2, 0)]);
        let admitted = Admitted::divide(candidates(["a", "b", "c", "c", "c"]), &usage, &limit, 10);
        assert_eq!((ids(&admitted.runs), ids(&admitted.over)), (vec![3, 4], vec![1, 2, 5]));
        assert_eq!(admitted.limited_by_rate, ["a".to_owned()].into(), "the end of a run returns the others");
        let changes = admitted.rate_changes(&limit);
        let changes: Vec<_> = changes.iter().map(|(key, it)| (&**key, it.begun, it.has_parked)).collect();
        assert_eq!(changes, [("a", 0, Some(true)), ("c", 2, None)]);
    }

    #[test]
    fn parked_runs_return_as_far_as_both_limits_admit_them() {
        let limit = limits(Limits::NONE.concurrency_by(2, "k").rate_by(3, PERIOD, "k"));
        let usage = usage([("a", 0, 2), ("b", 1, 0), ("c", 0, 3), ("d", 2, 3)]);
        let keys = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let returns = usage.returns(&limit, &Returned::default(), keys);
        assert_eq!(returns.iter().map(|it| it.runs_max).collect::<Vec<_>>(), [1, 1, 0, 0]);
        let looks = |returned: [i64; 4]| {
            let changes = returns.iter().zip(returned).map(|(it, returned)| it.change(returned).has_parked);
            changes.collect::<Option<Vec<_>>>().unwrap()
        };
        assert_eq!(looks([1, 1, 0, 0]), [true, false, true, false], "the others wait for the end of a run");
        assert_eq!(looks([0, 0, 0, 0]), [false, false, true, false], "none is parked");
    }

    #[test]
    fn limits_of_the_saga_count_all_keys_together() {
        let limit = limits(Limits::NONE.concurrency(5).rate(3, PERIOD));
        let of_saga = usage([("", 3, 1), ("a", 9, 9)]);
        assert_eq!((of_saga.capacity_of_saga(&limit), of_saga.saga_opens_in(&limit)), (2, None));
        let of_saga = usage([("", 0, 3)]);
        assert_eq!((of_saga.capacity_of_saga(&limit), of_saga.saga_opens_in(&limit)), (0, Some(1.0)));
        assert!(!limit.is_by_key());
    }
}
