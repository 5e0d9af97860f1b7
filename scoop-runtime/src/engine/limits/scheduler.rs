//! What the task of limits knows of each saga, and which one claims next: a function of the last checks and claims.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::claims::Claimed;
use super::{CLAIMS_MAX, CapacityRelease, PAUSE_WHEN_POSTPONED};
use crate::engine::claim::{PAUSES_WHERE_RUNS_RETURN, Positions, QueueProgress};
use crate::engine::slots::{FreedCapacity, RunningCounts};
use crate::store::{ClaimQueues, FreedKeys, LimitedQueue, LimitedSaga, QueueCursors, QueueScan, ReadPage};

/// A claim that goes through a page of keys may take so long. What it takes beyond that, so many times, is the pause before the next
/// page, at least.
const PAGE_TIME: Duration = Duration::from_millis(100);
const PAGE_PAUSES: u32 = 300;

/// The last scans at sagas with limits.
pub(super) struct Scheduler {
    of_sagas: BTreeMap<String, AdmissionState>,
    /// The sagas of which runs may be claimed now.
    pending: BTreeMap<String, PendingClaim>,
    /// The sagas with a claim under way. One of them may have a pending claim as well.
    claiming: BTreeSet<String>,
    last_claims: BTreeMap<String, LastClaim>,
    claim_count: u64,
    /// The topology of the positions, and of the pending claims.
    pub(super) topology: i64,
    /// The positions in the queues of each saga.
    progress: BTreeMap<String, QueueProgress>,
}

/// A claim that is to begin, and what it has to look for besides ready runs.
#[derive(Default)]
pub(super) struct PendingClaim {
    pub(super) freed: FreedKeys,
    /// Whether parked runs may return to their queue.
    pub(super) may_return: bool,
    /// Whether a rate admits a further run.
    pub(super) has_opened: bool,
    /// Whether other processes may not know of freed capacity.
    pub(super) is_unreleased: bool,
}

#[derive(Clone, Copy, Default)]
struct LastClaim {
    /// 0 if there was none.
    number: u64,
    /// Whether no run has begun in it.
    is_idle: bool,
    is_full: bool,
}

impl PendingClaim {
    fn add(&mut self, later: Self) {
        self.freed.keys.extend(later.freed.keys);
        self.freed.page_from = later.freed.page_from.or(self.freed.page_from.take());
        self.may_return |= later.may_return;
        self.has_opened |= later.has_opened;
        self.is_unreleased |= later.is_unreleased;
    }
}

/// The last scans at one saga.
struct AdmissionState {
    topology: i64,
    /// When a page of its keys was looked at.
    page_at: Instant,
    /// The pause before the next one, if that is longer than the interval.
    page_pause: Duration,
    next_page: String,
    /// Whether the pages follow each other at once, up to the last one.
    is_hurried: bool,
    /// When a rate admits the next run.
    opens_at: Option<Instant>,
    /// Whether a limit of the saga was reached, and no run has ended since.
    is_reached: bool,
    /// The freed keys that a postponed scan could not go through.
    left: Vec<String>,
    /// No check before this time, since the limit was locked, or the claim was refused.
    postponed_until: Option<Instant>,
}

impl AdmissionState {
    fn is_closed(&self) -> bool {
        self.is_reached && self.opens_at.is_some()
    }
}

/// Why a saga is looked at.
pub(super) struct CheckReason {
    pub(super) freed: FreedKeys,
    /// Whether a rate admits a further run since the last scan.
    pub(super) has_opened: bool,
    /// Whether its rate admits none before a known time.
    pub(super) is_closed: bool,
    /// Whether a limit of the saga was reached at the last claim, or may be by the one under way.
    pub(super) was_reached: bool,
}

impl Scheduler {
    pub(super) fn new() -> Self {
        Self {
            of_sagas: BTreeMap::new(),
            pending: BTreeMap::new(),
            claiming: BTreeSet::new(),
            last_claims: BTreeMap::new(),
            claim_count: 0,
            topology: 0,
            progress: BTreeMap::new(),
        }
    }

    /// Forgets everything but the claims under way, since a claim failed: it may have been made.
    pub(super) fn forget(&mut self) {
        self.progress.values_mut().for_each(QueueProgress::reset);
        let progress = std::mem::take(&mut self.progress);
        let claiming = std::mem::take(&mut self.claiming);
        *self = Self { claiming, progress, ..Self::new() };
    }

    /// Drops the positions of another topology, since runs may have returned to its queues, and the pending claims, since all keys
    /// are checked again.
    pub(super) fn follow(&mut self, topology: i64) {
        if self.topology != topology {
            self.topology = topology;
            self.progress.values_mut().for_each(|progress| progress.follow(topology));
            self.pending.clear();
        }
    }

    pub(super) fn progress(&mut self, of: &LimitedSaga) -> &mut QueueProgress {
        let topology = self.topology;
        self.progress.entry(of.saga.clone()).or_insert_with(|| {
            let mut progress = match of.key_from {
                Some(_) => QueueProgress::with_pauses(PAUSES_WHERE_RUNS_RETURN),
                None => QueueProgress::default(),
            };
            progress.follow(topology);
            progress
        })
    }

    /// The positions in all these queues, for a scan now.
    pub(super) fn cursors(&mut self, queues: &[LimitedQueue]) -> QueueCursors {
        for LimitedQueue { of, .. } in queues {
            if !self.is_claiming(&of.saga) {
                self.progress(of).cursors();
            }
        }
        self.known(queues)
    }

    pub(super) fn known(&self, queues: &[LimitedQueue]) -> QueueCursors {
        let known = |queue: &LimitedQueue| self.progress.get(&queue.of.saga).map(QueueProgress::known);
        QueueCursors::joined(queues.iter().filter_map(|queue| Some((&queue.queues, known(queue)?))))
    }

    /// Records a scan for ready queues. A claim under way records its own.
    pub(super) fn record_ready(&mut self, queues: &[LimitedQueue], ready: &ClaimQueues, scan: &QueueScan) {
        for LimitedQueue { of, queues: claim_queues } in queues {
            if !self.is_claiming(&of.saga) {
                let ready = ready.only(|claim_queue| claim_queues.each().any(|it| it == claim_queue));
                self.progress(of).record_scan(claim_queues, &ready, scan);
            }
        }
    }

    /// Advances the positions as far as a claim from these has come, unless they were dropped meanwhile.
    pub(super) fn advance(&mut self, saga: &str, from: &Positions, advanced: Option<QueueCursors>) {
        if let Some(progress) = self.progress.get_mut(saga) {
            progress.advance(from, advanced);
        }
    }

    pub(super) fn add_pending(&mut self, saga: &str, pending: PendingClaim) {
        self.pending.entry(saga.to_owned()).or_default().add(pending);
    }

    /// Adds a claim of each saga with a new ready run of one of these handlers, unless its limit is known to admit none.
    pub(super) fn add_ready(&mut self, queues: &[LimitedQueue], handlers: &BTreeSet<String>) {
        let is_ready = |queue: &&LimitedQueue| queue.of.handlers.iter().any(|it| handlers.contains(it));
        for LimitedQueue { of, .. } in queues.iter().filter(is_ready) {
            let is_full = of.key_from.is_none() && self.is_reached(&of.saga);
            if !is_full && !self.is_postponed(&of.saga) && !self.is_closed(&of.saga) {
                self.pending.entry(of.saga.clone()).or_default();
            }
        }
    }

    pub(super) fn has_pending(&self, queues: &[LimitedQueue]) -> bool {
        queues.iter().any(|queue| self.pending.contains_key(&queue.of.saga))
    }

    /// The pending claim of a saga if other processes may not know of its freed capacity.
    pub(super) fn unreleased(&self, saga: &str) -> Option<&PendingClaim> {
        self.pending.get(saga).filter(|pending| pending.is_unreleased)
    }

    pub(super) fn end_release(&mut self, saga: &str, released: CapacityRelease) {
        match released {
            CapacityRelease::Released { page } => {
                let Some(pending) = self.pending.get_mut(saga) else { return };
                pending.is_unreleased = false;
                let freed = std::mem::take(&mut pending.freed);
                self.advance_page(saga, &freed, page);
            }
            CapacityRelease::Nothing => {}
            CapacityRelease::Refused => self.postpone(saga, PendingClaim::default()),
        }
    }

    pub(super) fn has_claims(&self) -> bool {
        !self.claiming.is_empty()
    }

    pub(super) fn is_claiming(&self, saga: &str) -> bool {
        self.claiming.contains(saga)
    }

    /// The saga to claim next: the one with the fewest runs in execution, and of several the one whose last claim was the earliest. A saga
    /// whose last claim began no run is passed over for as many claims as there are other sagas: it may have to park many runs.
    ///
    /// None if it has to wait for the end of a claim. Beside a claim under way it begins only if its saga has no more runs than that
    /// of the claim, which would get the next slot otherwise, and no backlog: so backlogs have one connection at a time.
    pub(super) fn next_pending<'a>(
        &self,
        queues: &'a [LimitedQueue],
        running: &RunningCounts,
    ) -> Option<&'a LimitedQueue> {
        let runs = |queue: &LimitedQueue| -> usize {
            queue.of.handlers.iter().map(|handler| running.get(handler)).sum()
        };
        let last = |queue: &LimitedQueue| self.last_claims.get(&queue.of.saga).copied().unwrap_or_default();
        let (claiming, others): (Vec<_>, Vec<_>) =
            queues.iter().partition(|queue| self.is_claiming(&queue.of.saga));
        let due: Vec<_> =
            others.into_iter().filter(|queue| self.pending.contains_key(&queue.of.saga)).collect();
        let others = due.len().saturating_sub(1) as u64;
        let next = due.into_iter().min_by_key(|queue| {
            let last = last(queue);
            (last.is_idle && self.claim_count - last.number < others, runs(queue), last.number)
        })?;
        let begins_beside = || !last(next).is_full && claiming.iter().all(|other| runs(next) <= runs(other));
        let begins = self.claiming.is_empty() || self.claiming.len() < CLAIMS_MAX && begins_beside();
        begins.then_some(next)
    }

    /// Takes the next pending claim. It is under way until [`Self::end_claim`].
    pub(super) fn take_next<'a>(
        &mut self,
        queues: &'a [LimitedQueue],
        running: &RunningCounts,
    ) -> Option<(&'a LimitedQueue, PendingClaim)> {
        let next = self.next_pending(queues, running)?;
        let pending = self.pending.remove(&next.of.saga)?;
        self.claiming.insert(next.of.saga.clone());
        Some((next, pending))
    }

    pub(super) fn end_claim(&mut self, saga: &str, claimed: Option<&Claimed>) {
        self.claiming.remove(saga);
        self.claim_count += 1;
        let is_idle = claimed.is_none_or(|claimed| !claimed.has_begun);
        let is_full = claimed.is_some_and(|claimed| claimed.is_full);
        self.last_claims.insert(saga.to_owned(), LastClaim { number: self.claim_count, is_idle, is_full });
    }

    /// Begins a check of a saga whose ended runs have freed this capacity.
    pub(super) fn begin(
        &mut self,
        queue: &LimitedQueue,
        by: FreedCapacity,
        interval: Duration,
    ) -> CheckReason {
        let FreedCapacity { any: has_ended, keys } = by;
        let (topology, now) = (queue.queues.topology, Instant::now());
        let is_claiming = self.claiming.contains(&queue.of.saga);
        let state = self.of_sagas.get_mut(&queue.of.saga).filter(|state| state.topology == topology);
        let is_by_key = queue.of.key_from.is_some();
        let freed = |keys, page_from| match is_by_key {
            true => FreedKeys { keys, page_from },
            false => FreedKeys::default(),
        };
        let Some(state) = state else {
            let state = AdmissionState {
                topology,
                page_at: now,
                page_pause: Duration::ZERO,
                next_page: String::new(),
                is_hurried: is_by_key,
                opens_at: None,
                is_reached: false,
                left: vec![],
                postponed_until: None,
            };
            self.of_sagas.insert(queue.of.saga.clone(), state);
            let freed = freed(keys, Some(String::new()));
            return CheckReason { freed, has_opened: false, is_closed: false, was_reached: is_claiming };
        };
        let has_opened = state.opens_at.is_some_and(|at| at <= now);
        if has_opened {
            state.opens_at = None;
        }
        let (is_closed, was_reached) = (state.is_closed(), state.is_reached);
        // A rate admits no run since another one has ended.
        state.is_reached &= is_closed || !has_ended;
        state.postponed_until = None;
        // A claim under way may be going through the page.
        let pause = interval.max(state.page_pause);
        let has_page = !is_claiming && (state.is_hurried || now.duration_since(state.page_at) >= pause);
        let keys = [std::mem::take(&mut state.left), keys].concat();
        let freed = freed(keys, has_page.then(|| state.next_page.clone()));
        CheckReason { freed, has_opened, is_closed, was_reached: was_reached || is_claiming }
    }

    /// Records that a claim has gone through the page of keys that was next, if it was asked for it.
    pub(super) fn advance_page(&mut self, saga: &str, freed: &FreedKeys, ReadPage { next, time }: ReadPage) {
        let is_next = |state: &&mut AdmissionState| freed.page_from.as_ref() == Some(&state.next_page);
        if let Some(state) = self.of_sagas.get_mut(saga).filter(is_next) {
            // A page reads the entries of runs that have returned, as long as an open transaction keeps them.
            state.page_at = Instant::now();
            state.page_pause = time.saturating_sub(PAGE_TIME) * PAGE_PAUSES;
            state.is_hurried &= next.is_some();
            state.next_page = next.unwrap_or_default();
        }
    }

    pub(super) fn end(&mut self, saga: &str, claimed: &Claimed) {
        if let Some(state) = self.of_sagas.get_mut(saga) {
            state.is_reached = claimed.is_reached;
            state.opens_at = claimed.opens_in.map(|opens_in| Instant::now() + opens_in);
        }
    }

    pub(super) fn is_postponed(&self, saga: &str) -> bool {
        let until = self.of_sagas.get(saga).and_then(|state| state.postponed_until);
        until.is_some_and(|until| until > Instant::now())
    }

    /// Whether a limit of a saga was reached at the last claim, and is still.
    fn is_reached(&self, saga: &str) -> bool {
        self.of_sagas.get(saga).is_some_and(|state| state.is_reached)
    }

    /// Whether the rate of a saga admits no run before a known time.
    pub(super) fn is_closed(&self, saga: &str) -> bool {
        self.of_sagas.get(saga).is_some_and(AdmissionState::is_closed)
    }

    pub(super) fn forget_saga(&mut self, saga: &str) {
        self.of_sagas.remove(saga);
    }

    /// Postpones the next check of a saga, and this claim with its next one: its limit was locked, or the claim was refused.
    pub(super) fn postpone(&mut self, saga: &str, mut pending: PendingClaim) {
        if let Some(next) = self.pending.remove(saga) {
            pending.add(next);
        }
        if let Some(state) = self.of_sagas.get_mut(saga) {
            (state.left, state.postponed_until) =
                (pending.freed.keys, Some(Instant::now() + PAUSE_WHEN_POSTPONED));
            state.opens_at = pending.has_opened.then(Instant::now).or(state.opens_at);
        }
    }

    /// In how long one of these sagas has to be checked: a rate admits its next run, its check was postponed, there is a further
    /// page of keys, or the last claim may have missed a run.
    pub(super) fn next_in(&self, queues: &[LimitedQueue]) -> Option<Duration> {
        let now = Instant::now();
        let limits = queues.iter().filter_map(|queue| self.of_sagas.get(&queue.of.saga));
        let next = limits.filter_map(|state| {
            let page = state.is_hurried.then_some(now);
            state.postponed_until.or_else(|| page.or(state.opens_at))
        });
        let of_queue = |queue: &LimitedQueue| self.progress.get(&queue.of.saga)?.rescan_at();
        let next = next.chain(queues.iter().filter_map(of_queue)).min()?;
        Some(next.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Snapshot;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn queue(topology: i64) -> LimitedQueue {
        let of = LimitedSaga { saga: "saga".into(), key_from: Some("key".into()), ..LimitedSaga::default() };
        LimitedQueue { of, queues: ClaimQueues { topology, ..ClaimQueues::default() } }
    }

    fn capacity(key: &str) -> FreedCapacity {
        FreedCapacity { any: true, keys: vec![key.to_owned()] }
    }

    fn read(next: Option<&str>, time: Duration) -> ReadPage {
        ReadPage { next: next.map(str::to_owned), time }
    }

    /// The page of the next scan, of which the next one begins with that key.
    fn page(limits: &mut Scheduler, topology: i64, next: Option<&str>) -> Option<String> {
        let freed = limits.begin(&queue(topology), FreedCapacity::default(), INTERVAL).freed;
        limits.advance_page("saga", &freed, read(next, Duration::ZERO));
        freed.page_from
    }

    #[tokio::test(start_paused = true)]
    async fn pages_of_keys_follow_each_other_at_once_after_a_change_and_else_at_the_interval() {
        let mut limits = Scheduler::new();
        for topology in [1, 2] {
            assert_eq!(page(&mut limits, topology, Some("b")).as_deref(), Some(""));
            assert_eq!(limits.next_in(&[queue(topology)]), Some(Duration::ZERO));
            assert_eq!(page(&mut limits, topology, Some("c")).as_deref(), Some("b"));
            assert_eq!(page(&mut limits, topology, None).as_deref(), Some("c"));
            assert_eq!(limits.next_in(&[queue(topology)]), None);
            assert_eq!(page(&mut limits, topology, None), None);
            for (next, expected) in [(Some("b"), ""), (None, "b"), (Some("b"), "")] {
                tokio::time::advance(INTERVAL).await;
                assert_eq!(page(&mut limits, topology, next).as_deref(), Some(expected));
                assert_eq!(page(&mut limits, topology, None), None);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn page_that_took_long_is_followed_by_a_longer_pause() {
        let mut limits = Scheduler::new();
        page(&mut limits, 1, None);
        tokio::time::advance(INTERVAL).await;
        let freed = limits.begin(&queue(1), FreedCapacity::default(), INTERVAL).freed;
        // It has waited for a slot before.
        tokio::time::advance(10 * INTERVAL).await;
        limits.advance_page("saga", &freed, read(None, PAGE_TIME + INTERVAL / 50));
        tokio::time::advance(5 * INTERVAL).await;
        assert_eq!(page(&mut limits, 1, None), None);
        tokio::time::advance(INTERVAL).await;
        assert_eq!(page(&mut limits, 1, None).as_deref(), Some(""));
    }

    #[tokio::test(start_paused = true)]
    async fn postponed_look_goes_through_its_keys_and_its_page_later() {
        let mut limits = Scheduler::new();
        let freed = limits.begin(&queue(1), capacity("k"), INTERVAL).freed;
        let expected = FreedKeys { keys: vec!["k".into()], page_from: Some(String::new()) };
        assert_eq!(freed, expected);
        limits.postpone("saga", PendingClaim { freed, ..PendingClaim::default() });
        assert_eq!(limits.next_in(&[queue(1)]), Some(PAUSE_WHEN_POSTPONED));
        assert_eq!(limits.begin(&queue(1), FreedCapacity::default(), INTERVAL).freed, expected);
    }

    /// The saga to claim next, while all of these have more runs than there are slots.
    fn next_pending(
        limits: &mut Scheduler,
        queues: &[LimitedQueue],
        running: &RunningCounts,
        has_begun: bool,
    ) -> String {
        for queue in queues {
            limits.pending.entry(queue.of.saga.clone()).or_default();
        }
        let (LimitedQueue { of, .. }, _) = limits.take_next(queues, running).unwrap();
        limits.end_claim(&of.saga, Some(&Claimed { has_begun, ..Claimed::default() }));
        of.saga.clone()
    }

    fn queues<const N: usize>(sagas: [&str; N]) -> [LimitedQueue; N] {
        sagas.map(|saga| {
            let handlers = vec![saga.to_owned(), format!("former {saga}")];
            let of = LimitedSaga { saga: saga.to_owned(), handlers, key_from: None };
            LimitedQueue { of, queues: ClaimQueues::default() }
        })
    }

    #[tokio::test]
    async fn saga_with_the_fewest_runs_is_next_and_of_several_the_one_that_waits_longest() {
        let (mut limits, running, queues) =
            (Scheduler::new(), RunningCounts::default(), queues(["a", "b", "c"]));
        let mut next = |running: &RunningCounts| next_pending(&mut limits, &queues, running, true);
        assert_eq!([(); 4].map(|()| next(&running)), ["a", "b", "c", "a"]);
        let _run = running.take("former b");
        assert_eq!([(); 4].map(|()| next(&running)), ["c", "a", "c", "a"]);
        let _others = (running.take("a"), running.take("c"));
        assert_eq!(next(&running), "b", "all have one run");
    }

    #[tokio::test]
    async fn saga_of_which_no_run_begins_is_passed_over_for_as_many_turns_as_there_are_others() {
        let (mut limits, running, queues) =
            (Scheduler::new(), RunningCounts::default(), queues(["a", "b", "c"]));
        let _runs = (running.take("b"), running.take("c"));
        let mut next = |has_begun| next_pending(&mut limits, &queues, &running, has_begun);
        assert_eq!([(); 6].map(|()| next(false)), ["a", "b", "c", "a", "b", "c"]);
        assert_eq!([(); 3].map(|()| next(true)), ["a", "a", "a"], "it has the fewest runs");
        let _further = [(); 5].map(|()| running.take("c"));
        assert_eq!(next_pending(&mut limits, &queues, &running, false), "a");
        let mut next = || next_pending(&mut limits, &queues, &running, true);
        assert_eq!([(); 4].map(|()| next()), ["b", "b", "a", "a"], "also while another saga gets no turn");
    }

    #[tokio::test(start_paused = true)]
    async fn saga_that_got_a_ready_run_has_a_turn_without_a_look() {
        let (mut limits, running, queues) = (Scheduler::new(), RunningCounts::default(), queues(["a", "b"]));
        let mut turn_after = |handlers: &[&str]| -> Option<String> {
            limits.add_ready(&queues, &handlers.iter().map(|handler| (*handler).to_owned()).collect());
            let saga = limits.take_next(&queues, &running)?.0.of.saga.clone();
            limits.end_claim(&saga, None);
            Some(saga)
        };
        assert_eq!(turn_after(&["without a limit"]), None);
        assert_eq!(turn_after(&["former b"]).as_deref(), Some("b"));
        limits.begin(&queues[1], FreedCapacity::default(), INTERVAL);
        let b = BTreeSet::from(["b".to_owned()]);
        let claimed =
            |is_reached, opens_in| Claimed { is_reached, opens_in, has_begun: true, ..Claimed::default() };
        limits.end("b", &claimed(true, None));
        limits.add_ready(&queues, &b);
        assert!(!limits.has_pending(&queues), "its limit is reached");
        limits.begin(&queues[1], FreedCapacity { any: true, keys: vec![] }, INTERVAL);
        limits.add_ready(&queues, &b);
        assert!(limits.pending.remove("b").is_some(), "a run has ended since");
        limits.end("b", &claimed(true, None));
        let mut by_key = queues.clone();
        by_key[1].of.key_from = Some("key".into());
        limits.add_ready(&by_key, &b);
        assert!(limits.pending.remove("b").is_some(), "the run may have another key");
        limits.end("b", &claimed(true, Some(INTERVAL)));
        limits.begin(&queues[1], FreedCapacity { any: true, keys: vec![] }, INTERVAL);
        limits.add_ready(&by_key, &b);
        assert!(!limits.has_pending(&queues), "its rate admits none yet");
        limits.end("b", &claimed(false, None));
        limits.postpone("b", PendingClaim::default());
        limits.add_ready(&queues, &b);
        assert!(!limits.has_pending(&queues), "its limit is locked");
    }

    fn begin_next(
        limits: &mut Scheduler,
        queues: &[LimitedQueue],
        running: &RunningCounts,
    ) -> Option<String> {
        limits.take_next(queues, running).map(|(queue, _)| queue.of.saga.clone())
    }

    fn give_turns(limits: &mut Scheduler, sagas: &[&str]) {
        sagas.iter().for_each(|saga| limits.add_pending(saga, PendingClaim::default()));
    }

    /// What a claim finds that takes a part of a backlog.
    fn full() -> Claimed {
        Claimed { is_full: true, has_begun: true, ..Claimed::default() }
    }

    #[tokio::test]
    async fn saga_without_a_backlog_is_claimed_beside_the_claim_of_a_crowd() {
        let (mut limits, running, queues) =
            (Scheduler::new(), RunningCounts::default(), queues(["crowd", "lone", "third"]));
        let _crowd = [(); 3].map(|()| running.take("crowd"));
        give_turns(&mut limits, &["crowd"]);
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("crowd"));
        give_turns(&mut limits, &["crowd", "lone", "third"]);
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("lone"));
        assert_eq!(begin_next(&mut limits, &queues, &running), None, "there are as many claims as may be");
        limits.end_claim("lone", None);
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("third"));
        limits.end_claim("third", None);
        assert_eq!(begin_next(&mut limits, &queues, &running), None, "its own claim is under way");
        limits.end_claim("crowd", Some(&full()));
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("crowd"));
    }

    #[tokio::test]
    async fn claims_of_two_backlogs_are_not_under_way_together() {
        let (mut limits, running, queues) =
            (Scheduler::new(), RunningCounts::default(), queues(["a", "b", "lone"]));
        let _runs = (running.take("a"), running.take("b"), running.take("b"));
        for saga in ["a", "b"] {
            give_turns(&mut limits, &[saga]);
            assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some(saga));
            limits.end_claim(saga, Some(&full()));
        }
        give_turns(&mut limits, &["b"]);
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("b"));
        give_turns(&mut limits, &["a", "b"]);
        assert_eq!(
            begin_next(&mut limits, &queues, &running),
            None,
            "backlogs have one connection at a time"
        );
        give_turns(&mut limits, &["lone"]);
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("lone"));
        limits.end_claim("b", Some(&full()));
        assert_eq!(begin_next(&mut limits, &queues, &running), None, "a backlog waits for the lone saga");
        limits.end_claim("lone", None);
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("a"));
    }

    /// With few slots, the next one is for the saga of the claim under way.
    #[tokio::test]
    async fn saga_with_more_runs_than_that_of_the_claim_under_way_waits() {
        let (mut limits, running, queues) =
            (Scheduler::new(), RunningCounts::default(), queues(["few", "many"]));
        let _run = running.take("many");
        give_turns(&mut limits, &["few", "many"]);
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("few"));
        assert_eq!(begin_next(&mut limits, &queues, &running), None);
        let _begun = running.take("former few");
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("many"), "both have one");
    }

    #[tokio::test(start_paused = true)]
    async fn page_of_keys_is_not_listed_again_while_a_claim_goes_through_it() {
        let (mut limits, running, queues) = (Scheduler::new(), RunningCounts::default(), [queue(1)]);
        let first = limits.begin(&queues[0], FreedCapacity::default(), INTERVAL);
        assert!(!first.was_reached);
        limits.add_pending("saga", PendingClaim { freed: first.freed, ..PendingClaim::default() });
        let (_, pending) = limits.take_next(&queues, &running).unwrap();
        tokio::time::advance(INTERVAL).await;
        let second = limits.begin(&queues[0], capacity("k"), INTERVAL);
        assert_eq!(second.freed, FreedKeys { keys: vec!["k".into()], page_from: None });
        assert!(second.was_reached, "the claim under way may reach a limit");
        limits.end_claim("saga", Some(&full()));
        limits.advance_page("saga", &pending.freed, read(Some("b"), Duration::ZERO));
        let third = limits.begin(&queues[0], FreedCapacity::default(), INTERVAL).freed;
        assert_eq!(third.page_from.as_deref(), Some("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn postponed_saga_gets_no_turn_that_it_was_given_meanwhile() {
        let (mut limits, running, queues) = (Scheduler::new(), RunningCounts::default(), [queue(1)]);
        let freed = limits.begin(&queues[0], capacity("a"), INTERVAL).freed;
        limits.add_pending("saga", PendingClaim { freed, ..PendingClaim::default() });
        let (_, pending) = limits.take_next(&queues, &running).unwrap();
        let freed = limits.begin(&queues[0], capacity("b"), INTERVAL).freed;
        limits.add_pending("saga", PendingClaim { freed, ..PendingClaim::default() });
        limits.end_claim("saga", None);
        limits.postpone("saga", pending);
        assert!(!limits.has_pending(&queues) && limits.is_postponed("saga"));
        let later = limits.begin(&queues[0], FreedCapacity::default(), INTERVAL).freed;
        assert_eq!(later, FreedKeys { keys: vec!["a".into(), "b".into()], page_from: Some(String::new()) });
    }

    #[tokio::test(start_paused = true)]
    async fn places_of_a_locked_limit_stay_to_be_offered() {
        let (mut limits, queues) = (Scheduler::new(), [queue(1)]);
        let freed = limits.begin(&queues[0], capacity("k"), INTERVAL).freed;
        limits.add_pending("saga", PendingClaim { freed, is_unreleased: true, ..PendingClaim::default() });
        limits.end_release("saga", CapacityRelease::Nothing);
        let pending = limits.unreleased("saga").expect("other processes do not know of the place");
        assert_eq!(pending.freed.keys, ["k"]);
        limits.end_release("saga", CapacityRelease::Released { page: read(Some("b"), Duration::ZERO) });
        assert!(limits.unreleased("saga").is_none() && limits.has_pending(&queues));
        let next = limits.begin(&queues[0], FreedCapacity::default(), INTERVAL).freed;
        assert_eq!(next, FreedKeys { keys: vec![], page_from: Some("b".into()) }, "the place is offered");
    }

    #[tokio::test]
    async fn claims_under_way_are_known_after_a_failure() {
        let (mut limits, running, queues) = (Scheduler::new(), RunningCounts::default(), queues(["a", "b"]));
        give_turns(&mut limits, &["a", "b"]);
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("a"));
        limits.forget();
        assert!(!limits.has_pending(&queues) && limits.is_claiming("a"));
        give_turns(&mut limits, &["a"]);
        assert_eq!(begin_next(&mut limits, &queues, &running), None);
        limits.end_claim("a", None);
        assert_eq!(begin_next(&mut limits, &queues, &running).as_deref(), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn positions_are_those_of_one_topology() {
        let (mut limits, queues) = (Scheduler::new(), [queue(1)]);
        let scan = QueueScan { at: time::OffsetDateTime::UNIX_EPOCH, snapshot: Snapshot::default() };
        let scan_at = |limits: &mut Scheduler, topology| {
            limits.follow(topology);
            limits.cursors(&queues);
            let is_whole = limits.progress(&queues[0].of).known().is_at_the_beginning();
            limits.record_ready(&queues, &ClaimQueues::default(), &scan);
            is_whole
        };
        assert!(scan_at(&mut limits, 1));
        assert!(!scan_at(&mut limits, 1));
        assert!(limits.next_in(&queues).is_some(), "it looks back");
        assert!(scan_at(&mut limits, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn look_beside_a_claim_advances_no_position_of_its_saga() {
        let (mut limits, running, queues) = (Scheduler::new(), RunningCounts::default(), [queue(1)]);
        let scan = QueueScan { at: time::OffsetDateTime::UNIX_EPOCH, snapshot: Snapshot::default() };
        limits.follow(1);
        give_turns(&mut limits, &["saga"]);
        let positions = limits.progress(&queues[0].of).positions();
        limits.take_next(&queues, &running).expect("it has a turn");
        limits.cursors(&queues);
        limits.record_ready(&queues, &ClaimQueues::default(), &scan);
        assert!(limits.progress(&queues[0].of).known().is_at_the_beginning());
        let mut advanced = positions.cursors.clone();
        advanced.record_ready(&ClaimQueues::default(), &scan, []);
        limits.advance("saga", &positions, Some(advanced));
        assert!(!limits.progress(&queues[0].of).known().is_at_the_beginning());
    }
}
