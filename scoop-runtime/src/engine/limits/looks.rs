//! What the task of limits knows of each saga, and whose turn is next: a function of the last looks and claims.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::claims::Claimed;
use super::{CLAIMS_MAX, Offer, PAUSE_WHEN_POSTPONED};
use crate::engine::claim::{PAUSES_WHERE_RUNS_RETURN, Positions, QueueProgress};
use crate::engine::slots::{FreedPlaces, RunningCounts};
use crate::store::{FreedKeys, Lanes, LimitedQueue, LimitedSaga, QueueCursors, QueueLook, ReadPage};

/// A claim that goes through a page of keys may take so long. What it takes beyond that, so many times, is the pause before the next
/// page, at least.
const PAGE_TIME: Duration = Duration::from_millis(100);
const PAGE_PAUSES: u32 = 300;

/// The last looks at sagas with limits.
pub(super) struct Looks {
    of_sagas: BTreeMap<String, Look>,
    /// The sagas of which runs may be claimed now.
    turns: BTreeMap<String, Turn>,
    /// The sagas of which a claim is under way. Meanwhile they may get a further turn.
    under_way: BTreeSet<String>,
    /// The last turns of sagas.
    last_turns: BTreeMap<String, LastTurn>,
    /// The number of turns so far.
    turn_count: u64,
    /// The topology of the positions, and of the turns.
    pub(super) topology: i64,
    /// The positions in the queues of each saga.
    progress: BTreeMap<String, QueueProgress>,
}

/// The next turn of a saga.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) freed: FreedKeys,
    /// Whether parked runs may return to their queue.
    pub(super) may_return: bool,
    /// Whether a rate admits a further run.
    pub(super) has_opened: bool,
    /// Whether there are free places of which other processes may not know.
    pub(super) is_unoffered: bool,
}

/// The last turn of a saga.
#[derive(Clone, Copy, Default)]
struct LastTurn {
    /// The number of the turn; 0 if there was none.
    number: u64,
    /// Whether no run has begun in it.
    is_idle: bool,
    /// Whether there may have been more to claim.
    is_full: bool,
}

impl Turn {
    /// Adds what a later look has found.
    fn add(&mut self, later: Self) {
        self.freed.keys.extend(later.freed.keys);
        self.freed.page_from = later.freed.page_from.or(self.freed.page_from.take());
        self.may_return |= later.may_return;
        self.has_opened |= later.has_opened;
        self.is_unoffered |= later.is_unoffered;
    }
}

/// The last looks at one saga.
struct Look {
    /// The topology of these looks.
    topology: i64,
    /// When a page of its keys was looked at.
    page_at: Instant,
    /// The pause before the next one, if that is longer than the interval.
    page_pause: Duration,
    /// The key from which the next page begins.
    next_page: String,
    /// Whether the pages follow each other at once, up to the last one.
    is_hurried: bool,
    /// When a rate admits the next run.
    opens_at: Option<Instant>,
    /// Whether a limit of the saga was reached, and no run has left a place since.
    is_reached: bool,
    /// The freed keys that a postponed look could not go through.
    left: Vec<String>,
    /// No look before this time, since the limit was locked, or the claim was refused.
    postponed_until: Option<Instant>,
}

impl Look {
    fn is_closed(&self) -> bool {
        self.is_reached && self.opens_at.is_some()
    }
}

/// Why a saga is looked at.
pub(super) struct Due {
    pub(super) freed: FreedKeys,
    /// Whether a rate admits a further run since the last look.
    pub(super) has_opened: bool,
    /// Whether its rate admits none before a known time.
    pub(super) is_closed: bool,
    /// Whether a limit of the saga was reached at the last claim, or may be by the one under way.
    pub(super) was_reached: bool,
}

impl Looks {
    pub(super) fn new() -> Self {
        Self {
            of_sagas: BTreeMap::new(),
            turns: BTreeMap::new(),
            under_way: BTreeSet::new(),
            last_turns: BTreeMap::new(),
            turn_count: 0,
            topology: 0,
            progress: BTreeMap::new(),
        }
    }

    /// Forgets everything but the claims under way, since a claim failed: it may have been made.
    pub(super) fn forget(&mut self) {
        self.progress.values_mut().for_each(QueueProgress::reset);
        let progress = std::mem::take(&mut self.progress);
        let under_way = std::mem::take(&mut self.under_way);
        *self = Self { under_way, progress, ..Self::new() };
    }

    /// Drops the positions in queues that are others: runs may have returned to them. And the turns, since all keys are looked at anew.
    pub(super) fn follow(&mut self, topology: i64) {
        if self.topology != topology {
            self.topology = topology;
            self.progress.values_mut().for_each(|progress| progress.follow(topology));
            self.turns.clear();
        }
    }

    /// The positions in the queues of a saga.
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

    /// The positions in all these queues, for a look now.
    pub(super) fn cursors(&mut self, queues: &[LimitedQueue]) -> QueueCursors {
        for LimitedQueue { of, .. } in queues {
            if !self.is_under_way(&of.saga) {
                self.progress(of).cursors();
            }
        }
        self.known(queues)
    }

    /// The positions in all these queues as they are.
    pub(super) fn known(&self, queues: &[LimitedQueue]) -> QueueCursors {
        let known = |queue: &LimitedQueue| self.progress.get(&queue.of.saga).map(QueueProgress::known);
        QueueCursors::joined(queues.iter().filter_map(|queue| Some((&queue.lanes, known(queue)?))))
    }

    /// Records a look for ready queues. A claim under way records its own.
    pub(super) fn looked(&mut self, queues: &[LimitedQueue], ready: &Lanes, look: &QueueLook) {
        for LimitedQueue { of, lanes } in queues {
            if !self.is_under_way(&of.saga) {
                let ready = ready.only(|lane| lanes.each().any(|it| it == lane));
                self.progress(of).looked_for_ready(lanes, &ready, look);
            }
        }
    }

    /// Advances the positions as far as a claim from these has come, unless they were dropped meanwhile.
    pub(super) fn advance(&mut self, saga: &str, from: &Positions, advanced: Option<QueueCursors>) {
        if let Some(progress) = self.progress.get_mut(saga) {
            progress.advance(from, advanced);
        }
    }

    /// Gives a turn to a saga.
    pub(super) fn add_turn(&mut self, saga: &str, turn: Turn) {
        self.turns.entry(saga.to_owned()).or_default().add(turn);
    }

    /// Gives a turn to each saga with a new ready run of one of these handlers, unless its limit is known to admit none.
    pub(super) fn add_ready(&mut self, queues: &[LimitedQueue], handlers: &BTreeSet<String>) {
        let is_ready = |queue: &&LimitedQueue| queue.of.handlers.iter().any(|it| handlers.contains(it));
        for LimitedQueue { of, .. } in queues.iter().filter(is_ready) {
            let is_full = of.key_from.is_none() && self.is_reached(&of.saga);
            if !is_full && !self.is_postponed(&of.saga) && !self.is_closed(&of.saga) {
                self.turns.entry(of.saga.clone()).or_default();
            }
        }
    }

    /// Whether one of these sagas has a turn.
    pub(super) fn has_turn(&self, queues: &[LimitedQueue]) -> bool {
        queues.iter().any(|queue| self.turns.contains_key(&queue.of.saga))
    }

    /// The turn of a saga with free places of which other processes may not know.
    pub(super) fn unoffered(&self, saga: &str) -> Option<&Turn> {
        self.turns.get(saga).filter(|turn| turn.is_unoffered)
    }

    /// Records what other processes were offered of a saga: its free places, unless the limit was locked or the offer was refused.
    pub(super) fn end_offer(&mut self, saga: &str, offered: Offer) {
        match offered {
            Offer::Places { page } => {
                let Some(turn) = self.turns.get_mut(saga) else { return };
                turn.is_unoffered = false;
                let freed = std::mem::take(&mut turn.freed);
                self.advance_page(saga, &freed, page);
            }
            Offer::Nothing => {}
            Offer::Refused => self.postpone(saga, Turn::default()),
        }
    }

    /// Whether a claim is under way.
    pub(super) fn is_any_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether a claim of runs of this saga is under way.
    pub(super) fn is_under_way(&self, saga: &str) -> bool {
        self.under_way.contains(saga)
    }

    /// The saga of the next turn: the one with the fewest runs in execution. Of several it is the one whose last turn was the earliest. A
    /// saga of which no run began in its last turn is passed over for as many turns as there are other sagas: it may have to park many runs.
    ///
    /// None if the turn has to wait for the end of a claim. Beside a claim under way it begins only if its saga has no more runs than that
    /// of the claim, which would get the next slot otherwise, and no backlog: so backlogs have one connection at a time.
    pub(super) fn next_turn<'a>(
        &self,
        queues: &'a [LimitedQueue],
        running: &RunningCounts,
    ) -> Option<&'a LimitedQueue> {
        let runs = |queue: &LimitedQueue| -> usize {
            queue.of.handlers.iter().map(|handler| running.of(handler)).sum()
        };
        let last = |queue: &LimitedQueue| self.last_turns.get(&queue.of.saga).copied().unwrap_or_default();
        let (under_way, others): (Vec<_>, Vec<_>) =
            queues.iter().partition(|queue| self.is_under_way(&queue.of.saga));
        let due: Vec<_> =
            others.into_iter().filter(|queue| self.turns.contains_key(&queue.of.saga)).collect();
        let others = due.len().saturating_sub(1) as u64;
        let next = due.into_iter().min_by_key(|queue| {
            let last = last(queue);
            (last.is_idle && self.turn_count - last.number < others, runs(queue), last.number)
        })?;
        let begins_beside = || !last(next).is_full && under_way.iter().all(|other| runs(next) <= runs(other));
        let begins = self.under_way.is_empty() || self.under_way.len() < CLAIMS_MAX && begins_beside();
        begins.then_some(next)
    }

    /// Takes the next turn: a claim of its saga is under way until the turn ends.
    pub(super) fn take_turn<'a>(
        &mut self,
        queues: &'a [LimitedQueue],
        running: &RunningCounts,
    ) -> Option<(&'a LimitedQueue, Turn)> {
        let next = self.next_turn(queues, running)?;
        let turn = self.turns.remove(&next.of.saga)?;
        self.under_way.insert(next.of.saga.clone());
        Some((next, turn))
    }

    /// Ends the turn of a saga with what its claim has found, if that was made.
    pub(super) fn end_turn(&mut self, saga: &str, claimed: Option<&Claimed>) {
        self.under_way.remove(saga);
        self.turn_count += 1;
        let is_idle = claimed.is_none_or(|claimed| !claimed.has_begun);
        let is_full = claimed.is_some_and(|claimed| claimed.is_full);
        self.last_turns.insert(saga.to_owned(), LastTurn { number: self.turn_count, is_idle, is_full });
    }

    /// Begins a look at a saga of which runs have left these places.
    pub(super) fn begin(&mut self, queue: &LimitedQueue, places: FreedPlaces, interval: Duration) -> Due {
        let FreedPlaces { any: has_ended, keys } = places;
        let (topology, now) = (queue.lanes.topology, Instant::now());
        let is_under_way = self.under_way.contains(&queue.of.saga);
        let look = self.of_sagas.get_mut(&queue.of.saga).filter(|look| look.topology == topology);
        let is_by_key = queue.of.key_from.is_some();
        let freed = |keys, page_from| match is_by_key {
            true => FreedKeys { keys, page_from },
            false => FreedKeys::default(),
        };
        let Some(look) = look else {
            let look = Look {
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
            self.of_sagas.insert(queue.of.saga.clone(), look);
            let freed = freed(keys, Some(String::new()));
            return Due { freed, has_opened: false, is_closed: false, was_reached: is_under_way };
        };
        let has_opened = look.opens_at.is_some_and(|at| at <= now);
        if has_opened {
            look.opens_at = None;
        }
        let (is_closed, was_reached) = (look.is_closed(), look.is_reached);
        // A rate admits no run since another one has ended.
        look.is_reached &= is_closed || !has_ended;
        look.postponed_until = None;
        // A claim under way may be going through the page.
        let pause = interval.max(look.page_pause);
        let has_page = !is_under_way && (look.is_hurried || now.duration_since(look.page_at) >= pause);
        let keys = [std::mem::take(&mut look.left), keys].concat();
        let freed = freed(keys, has_page.then(|| look.next_page.clone()));
        Due { freed, has_opened, is_closed, was_reached: was_reached || is_under_way }
    }

    /// Records that a claim has gone through the page of keys that was next, if it was asked for it.
    pub(super) fn advance_page(&mut self, saga: &str, freed: &FreedKeys, ReadPage { next, took }: ReadPage) {
        let is_next = |look: &&mut Look| freed.page_from.as_ref() == Some(&look.next_page);
        if let Some(look) = self.of_sagas.get_mut(saga).filter(is_next) {
            // A page reads the entries of runs that have returned, as long as an open transaction keeps them.
            look.page_at = Instant::now();
            look.page_pause = took.saturating_sub(PAGE_TIME) * PAGE_PAUSES;
            look.is_hurried &= next.is_some();
            look.next_page = next.unwrap_or_default();
        }
    }

    /// Records what a claim has found.
    pub(super) fn end(&mut self, saga: &str, claimed: &Claimed) {
        if let Some(look) = self.of_sagas.get_mut(saga) {
            look.is_reached = claimed.is_reached;
            look.opens_at = claimed.opens_in.map(|opens_in| Instant::now() + opens_in);
        }
    }

    /// Whether the next look at a saga is postponed.
    pub(super) fn is_postponed(&self, saga: &str) -> bool {
        let until = self.of_sagas.get(saga).and_then(|look| look.postponed_until);
        until.is_some_and(|until| until > Instant::now())
    }

    /// Whether a limit of a saga was reached at the last claim, and is still.
    fn is_reached(&self, saga: &str) -> bool {
        self.of_sagas.get(saga).is_some_and(|look| look.is_reached)
    }

    /// Whether the rate of a saga admits no run before a known time.
    pub(super) fn is_closed(&self, saga: &str) -> bool {
        self.of_sagas.get(saga).is_some_and(Look::is_closed)
    }

    /// Forgets what was found about a saga.
    pub(super) fn look_anew(&mut self, saga: &str) {
        self.of_sagas.remove(saga);
    }

    /// Postpones the next look at a saga, with this turn and its next one: its limit was locked, or the claim was refused.
    pub(super) fn postpone(&mut self, saga: &str, mut turn: Turn) {
        if let Some(next) = self.turns.remove(saga) {
            turn.add(next);
        }
        if let Some(look) = self.of_sagas.get_mut(saga) {
            (look.left, look.postponed_until) =
                (turn.freed.keys, Some(Instant::now() + PAUSE_WHEN_POSTPONED));
            look.opens_at = turn.has_opened.then(Instant::now).or(look.opens_at);
        }
    }

    /// In how long one of these sagas has to be looked at: a rate admits its next run, its look was postponed, there is a further
    /// page of keys, or the last claim may have missed a run.
    pub(super) fn next_in(&self, queues: &[LimitedQueue]) -> Option<Duration> {
        let now = Instant::now();
        let looks = queues.iter().filter_map(|queue| self.of_sagas.get(&queue.of.saga));
        let next = looks.filter_map(|look| {
            let page = look.is_hurried.then_some(now);
            look.postponed_until.or_else(|| page.or(look.opens_at))
        });
        let of_queue = |queue: &LimitedQueue| self.progress.get(&queue.of.saga)?.look_back_at();
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
        LimitedQueue { of, lanes: Lanes { topology, ..Lanes::default() } }
    }

    /// The place of a run with this key that has ended.
    fn places(key: &str) -> FreedPlaces {
        FreedPlaces { any: true, keys: vec![key.to_owned()] }
    }

    fn read(next: Option<&str>, took: Duration) -> ReadPage {
        ReadPage { next: next.map(str::to_owned), took }
    }

    /// The page of the next look, of which the next one begins with that key.
    fn page(looks: &mut Looks, topology: i64, next: Option<&str>) -> Option<String> {
        let freed = looks.begin(&queue(topology), FreedPlaces::default(), INTERVAL).freed;
        looks.advance_page("saga", &freed, read(next, Duration::ZERO));
        freed.page_from
    }

    #[tokio::test(start_paused = true)]
    async fn pages_of_keys_follow_each_other_at_once_after_a_change_and_else_at_the_interval() {
        let mut looks = Looks::new();
        for topology in [1, 2] {
            assert_eq!(page(&mut looks, topology, Some("b")).as_deref(), Some(""));
            assert_eq!(looks.next_in(&[queue(topology)]), Some(Duration::ZERO));
            assert_eq!(page(&mut looks, topology, Some("c")).as_deref(), Some("b"));
            assert_eq!(page(&mut looks, topology, None).as_deref(), Some("c"));
            assert_eq!(looks.next_in(&[queue(topology)]), None);
            assert_eq!(page(&mut looks, topology, None), None);
            for (next, expected) in [(Some("b"), ""), (None, "b"), (Some("b"), "")] {
                tokio::time::advance(INTERVAL).await;
                assert_eq!(page(&mut looks, topology, next).as_deref(), Some(expected));
                assert_eq!(page(&mut looks, topology, None), None);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn page_that_took_long_is_followed_by_a_longer_pause() {
        let mut looks = Looks::new();
        page(&mut looks, 1, None);
        tokio::time::advance(INTERVAL).await;
        let freed = looks.begin(&queue(1), FreedPlaces::default(), INTERVAL).freed;
        // It has waited for a slot before.
        tokio::time::advance(10 * INTERVAL).await;
        looks.advance_page("saga", &freed, read(None, PAGE_TIME + INTERVAL / 50));
        tokio::time::advance(5 * INTERVAL).await;
        assert_eq!(page(&mut looks, 1, None), None);
        tokio::time::advance(INTERVAL).await;
        assert_eq!(page(&mut looks, 1, None).as_deref(), Some(""));
    }

    #[tokio::test(start_paused = true)]
    async fn postponed_look_goes_through_its_keys_and_its_page_later() {
        let mut looks = Looks::new();
        let freed = looks.begin(&queue(1), places("k"), INTERVAL).freed;
        let expected = FreedKeys { keys: vec!["k".into()], page_from: Some(String::new()) };
        assert_eq!(freed, expected);
        looks.postpone("saga", Turn { freed, ..Turn::default() });
        assert_eq!(looks.next_in(&[queue(1)]), Some(PAUSE_WHEN_POSTPONED));
        assert_eq!(looks.begin(&queue(1), FreedPlaces::default(), INTERVAL).freed, expected);
    }

    /// The saga of the next turn, while all of these have more runs than there are slots.
    fn next_turn(
        looks: &mut Looks,
        queues: &[LimitedQueue],
        running: &RunningCounts,
        has_begun: bool,
    ) -> String {
        for queue in queues {
            looks.turns.entry(queue.of.saga.clone()).or_default();
        }
        let (LimitedQueue { of, .. }, _) = looks.take_turn(queues, running).unwrap();
        looks.end_turn(&of.saga, Some(&Claimed { has_begun, ..Claimed::default() }));
        of.saga.clone()
    }

    /// A queue of each of these sagas.
    fn queues<const N: usize>(sagas: [&str; N]) -> [LimitedQueue; N] {
        sagas.map(|saga| {
            let handlers = vec![saga.to_owned(), format!("former {saga}")];
            let of = LimitedSaga { saga: saga.to_owned(), handlers, key_from: None };
            LimitedQueue { of, lanes: Lanes::default() }
        })
    }

    #[tokio::test]
    async fn saga_with_the_fewest_runs_is_next_and_of_several_the_one_that_waits_longest() {
        let (mut looks, running, queues) = (Looks::new(), RunningCounts::default(), queues(["a", "b", "c"]));
        let mut next = |running: &RunningCounts| next_turn(&mut looks, &queues, running, true);
        assert_eq!([(); 4].map(|()| next(&running)), ["a", "b", "c", "a"]);
        let _run = running.take("former b");
        assert_eq!([(); 4].map(|()| next(&running)), ["c", "a", "c", "a"]);
        let _others = (running.take("a"), running.take("c"));
        assert_eq!(next(&running), "b", "all have one run");
    }

    #[tokio::test]
    async fn saga_of_which_no_run_begins_is_passed_over_for_as_many_turns_as_there_are_others() {
        let (mut looks, running, queues) = (Looks::new(), RunningCounts::default(), queues(["a", "b", "c"]));
        let _runs = (running.take("b"), running.take("c"));
        let mut next = |has_begun| next_turn(&mut looks, &queues, &running, has_begun);
        assert_eq!([(); 6].map(|()| next(false)), ["a", "b", "c", "a", "b", "c"]);
        assert_eq!([(); 3].map(|()| next(true)), ["a", "a", "a"], "it has the fewest runs");
        let _further = [(); 5].map(|()| running.take("c"));
        assert_eq!(next_turn(&mut looks, &queues, &running, false), "a");
        let mut next = || next_turn(&mut looks, &queues, &running, true);
        assert_eq!([(); 4].map(|()| next()), ["b", "b", "a", "a"], "also while another saga gets no turn");
    }

    #[tokio::test(start_paused = true)]
    async fn saga_that_got_a_ready_run_has_a_turn_without_a_look() {
        let (mut looks, running, queues) = (Looks::new(), RunningCounts::default(), queues(["a", "b"]));
        let mut turn_after = |handlers: &[&str]| -> Option<String> {
            looks.add_ready(&queues, &handlers.iter().map(|handler| (*handler).to_owned()).collect());
            let saga = looks.take_turn(&queues, &running)?.0.of.saga.clone();
            looks.end_turn(&saga, None);
            Some(saga)
        };
        assert_eq!(turn_after(&["without a limit"]), None);
        assert_eq!(turn_after(&["former b"]).as_deref(), Some("b"));
        looks.begin(&queues[1], FreedPlaces::default(), INTERVAL);
        let b = BTreeSet::from(["b".to_owned()]);
        let claimed =
            |is_reached, opens_in| Claimed { is_reached, opens_in, has_begun: true, ..Claimed::default() };
        looks.end("b", &claimed(true, None));
        looks.add_ready(&queues, &b);
        assert!(!looks.has_turn(&queues), "its limit is reached");
        looks.begin(&queues[1], FreedPlaces { any: true, keys: vec![] }, INTERVAL);
        looks.add_ready(&queues, &b);
        assert!(looks.turns.remove("b").is_some(), "a run has ended since");
        looks.end("b", &claimed(true, None));
        let mut by_key = queues.clone();
        by_key[1].of.key_from = Some("key".into());
        looks.add_ready(&by_key, &b);
        assert!(looks.turns.remove("b").is_some(), "the run may have another key");
        looks.end("b", &claimed(true, Some(INTERVAL)));
        looks.begin(&queues[1], FreedPlaces { any: true, keys: vec![] }, INTERVAL);
        looks.add_ready(&by_key, &b);
        assert!(!looks.has_turn(&queues), "its rate admits none yet");
        looks.end("b", &claimed(false, None));
        looks.postpone("b", Turn::default());
        looks.add_ready(&queues, &b);
        assert!(!looks.has_turn(&queues), "its limit is locked");
    }

    /// Begins a claim of the next saga, if it may begin now.
    fn begin_next(looks: &mut Looks, queues: &[LimitedQueue], running: &RunningCounts) -> Option<String> {
        looks.take_turn(queues, running).map(|(queue, _)| queue.of.saga.clone())
    }

    /// Gives a turn to each of these sagas.
    fn give_turns(looks: &mut Looks, sagas: &[&str]) {
        sagas.iter().for_each(|saga| looks.add_turn(saga, Turn::default()));
    }

    /// What a claim finds that takes a part of a backlog.
    fn full() -> Claimed {
        Claimed { is_full: true, has_begun: true, ..Claimed::default() }
    }

    #[tokio::test]
    async fn saga_without_a_backlog_is_claimed_beside_the_claim_of_a_crowd() {
        let (mut looks, running, queues) =
            (Looks::new(), RunningCounts::default(), queues(["crowd", "lone", "third"]));
        let _crowd = [(); 3].map(|()| running.take("crowd"));
        give_turns(&mut looks, &["crowd"]);
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("crowd"));
        give_turns(&mut looks, &["crowd", "lone", "third"]);
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("lone"));
        assert_eq!(begin_next(&mut looks, &queues, &running), None, "there are as many claims as may be");
        looks.end_turn("lone", None);
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("third"));
        looks.end_turn("third", None);
        assert_eq!(begin_next(&mut looks, &queues, &running), None, "its own claim is under way");
        looks.end_turn("crowd", Some(&full()));
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("crowd"));
    }

    #[tokio::test]
    async fn claims_of_two_backlogs_are_not_under_way_together() {
        let (mut looks, running, queues) =
            (Looks::new(), RunningCounts::default(), queues(["a", "b", "lone"]));
        let _runs = (running.take("a"), running.take("b"), running.take("b"));
        for saga in ["a", "b"] {
            give_turns(&mut looks, &[saga]);
            assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some(saga));
            looks.end_turn(saga, Some(&full()));
        }
        give_turns(&mut looks, &["b"]);
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("b"));
        give_turns(&mut looks, &["a", "b"]);
        assert_eq!(begin_next(&mut looks, &queues, &running), None, "backlogs have one connection at a time");
        give_turns(&mut looks, &["lone"]);
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("lone"));
        looks.end_turn("b", Some(&full()));
        assert_eq!(begin_next(&mut looks, &queues, &running), None, "a backlog waits for the lone saga");
        looks.end_turn("lone", None);
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("a"));
    }

    /// With few slots, the next one is for the saga of the claim under way.
    #[tokio::test]
    async fn saga_with_more_runs_than_that_of_the_claim_under_way_waits() {
        let (mut looks, running, queues) = (Looks::new(), RunningCounts::default(), queues(["few", "many"]));
        let _run = running.take("many");
        give_turns(&mut looks, &["few", "many"]);
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("few"));
        assert_eq!(begin_next(&mut looks, &queues, &running), None);
        let _begun = running.take("former few");
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("many"), "both have one");
    }

    #[tokio::test(start_paused = true)]
    async fn page_of_keys_is_not_listed_again_while_a_claim_goes_through_it() {
        let (mut looks, running, queues) = (Looks::new(), RunningCounts::default(), [queue(1)]);
        let first = looks.begin(&queues[0], FreedPlaces::default(), INTERVAL);
        assert!(!first.was_reached);
        looks.add_turn("saga", Turn { freed: first.freed, ..Turn::default() });
        let (_, turn) = looks.take_turn(&queues, &running).unwrap();
        tokio::time::advance(INTERVAL).await;
        let second = looks.begin(&queues[0], places("k"), INTERVAL);
        assert_eq!(second.freed, FreedKeys { keys: vec!["k".into()], page_from: None });
        assert!(second.was_reached, "the claim under way may reach a limit");
        looks.end_turn("saga", Some(&full()));
        looks.advance_page("saga", &turn.freed, read(Some("b"), Duration::ZERO));
        let third = looks.begin(&queues[0], FreedPlaces::default(), INTERVAL).freed;
        assert_eq!(third.page_from.as_deref(), Some("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn postponed_saga_gets_no_turn_that_it_was_given_meanwhile() {
        let (mut looks, running, queues) = (Looks::new(), RunningCounts::default(), [queue(1)]);
        let freed = looks.begin(&queues[0], places("a"), INTERVAL).freed;
        looks.add_turn("saga", Turn { freed, ..Turn::default() });
        let (_, turn) = looks.take_turn(&queues, &running).unwrap();
        let freed = looks.begin(&queues[0], places("b"), INTERVAL).freed;
        looks.add_turn("saga", Turn { freed, ..Turn::default() });
        looks.end_turn("saga", None);
        looks.postpone("saga", turn);
        assert!(!looks.has_turn(&queues) && looks.is_postponed("saga"));
        let later = looks.begin(&queues[0], FreedPlaces::default(), INTERVAL).freed;
        assert_eq!(later, FreedKeys { keys: vec!["a".into(), "b".into()], page_from: Some(String::new()) });
    }

    #[tokio::test(start_paused = true)]
    async fn places_of_a_locked_limit_stay_to_be_offered() {
        let (mut looks, queues) = (Looks::new(), [queue(1)]);
        let freed = looks.begin(&queues[0], places("k"), INTERVAL).freed;
        looks.add_turn("saga", Turn { freed, is_unoffered: true, ..Turn::default() });
        looks.end_offer("saga", Offer::Nothing);
        let turn = looks.unoffered("saga").expect("other processes do not know of the place");
        assert_eq!(turn.freed.keys, ["k"]);
        looks.end_offer("saga", Offer::Places { page: read(Some("b"), Duration::ZERO) });
        assert!(looks.unoffered("saga").is_none() && looks.has_turn(&queues));
        let next = looks.begin(&queues[0], FreedPlaces::default(), INTERVAL).freed;
        assert_eq!(next, FreedKeys { keys: vec![], page_from: Some("b".into()) }, "the place is offered");
    }

    #[tokio::test]
    async fn claims_under_way_are_known_after_a_failure() {
        let (mut looks, running, queues) = (Looks::new(), RunningCounts::default(), queues(["a", "b"]));
        give_turns(&mut looks, &["a", "b"]);
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("a"));
        looks.forget();
        assert!(!looks.has_turn(&queues) && looks.is_under_way("a"));
        give_turns(&mut looks, &["a"]);
        assert_eq!(begin_next(&mut looks, &queues, &running), None);
        looks.end_turn("a", None);
        assert_eq!(begin_next(&mut looks, &queues, &running).as_deref(), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn positions_are_those_of_one_topology() {
        let (mut looks, queues) = (Looks::new(), [queue(1)]);
        let look = QueueLook { at: time::OffsetDateTime::UNIX_EPOCH, snapshot: Snapshot::default() };
        let look_at = |looks: &mut Looks, topology| {
            looks.follow(topology);
            looks.cursors(&queues);
            let is_whole = looks.progress(&queues[0].of).known().is_at_the_beginning();
            looks.looked(&queues, &Lanes::default(), &look);
            is_whole
        };
        assert!(look_at(&mut looks, 1));
        assert!(!look_at(&mut looks, 1));
        assert!(looks.next_in(&queues).is_some(), "it looks back");
        assert!(look_at(&mut looks, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn look_beside_a_claim_advances_no_position_of_its_saga() {
        let (mut looks, running, queues) = (Looks::new(), RunningCounts::default(), [queue(1)]);
        let look = QueueLook { at: time::OffsetDateTime::UNIX_EPOCH, snapshot: Snapshot::default() };
        looks.follow(1);
        give_turns(&mut looks, &["saga"]);
        let positions = looks.progress(&queues[0].of).positions();
        looks.take_turn(&queues, &running).expect("it has a turn");
        looks.cursors(&queues);
        looks.looked(&queues, &Lanes::default(), &look);
        assert!(looks.progress(&queues[0].of).known().is_at_the_beginning());
        let mut advanced = positions.cursors.clone();
        advanced.looked(&Lanes::default(), &look, []);
        looks.advance("saga", &positions, Some(advanced));
        assert!(!looks.progress(&queues[0].of).known().is_at_the_beginning());
    }
}
