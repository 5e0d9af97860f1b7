//! Claims runs of sagas with limits and starts them.
//!
//! One task for all such sagas. No other statement claims their runs: a claim holds the lock of the limits, counts the runs in
//! execution and those that began in the last period, and takes no more than the limits admit. So it is exact across processes.
//! The task waits for slots and for the locks by itself, so that claims of other sagas never do.
//!
//! A limit by key needs the keys of runs before they are claimed, which follow from their messages. The claim of due runs computes
//! them. It parks the runs whose key has no place: they leave their queue, so that each of them is passed once. When a run has
//! ended, the next run of its key returns to its queue ([`FreedKeys`]). Keys whose runs ended unseen, in a process that died, are
//! found in pages: one page at each poll interval, and all of them one after the other when the topology has changed.
//!
//! A claim says when a rate admits the next run. The task looks then: no run is claimed before by looking more often. The runs of
//! a saga that has reached its rate stay in their queue; those of a key that has reached its rate are parked, and return to it at that time.
//!
//! Sagas take turns: a turn is one claim. Each slot goes to the saga with the fewest runs in execution in this process, so that the
//! backlog of one saga holds up no other. While there are more runs than slots, the task looks for the runs of further sagas, and
//! for suspects, after intervals ([`LOOK_INTERVAL`]), not at each claim. A saga for which this process has made a run ready has its
//! turn without such a look.
//!
//! A claim waits for the lock of a limit for a moment only, since it has slots meanwhile. While another session holds that lock, its
//! saga is looked at twice a second, and holds up no other.
//!
//! The task looks when a run of such a saga has ended in this process, when the claimer is woken, when the next run is due or is admitted
//! by its rate, and otherwise at the poll interval.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use scoop_core::refused_key;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::claim::{self, QueueProgress};
use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use super::slots::{FreedPlaces, RunningCounts};
use super::user_code::boundary;
use crate::error::is_transient;
use crate::saga::registry::RunnableSaga;
use crate::store::{
    Candidate, FreedKeys, Lanes, LimitedClaim, LimitedQueue, LimitedRequest, QueueCursors, Suspect,
    SuspectClaim,
};
use crate::telemetry;

/// The number of runs that one claim takes.
const BATCH_MAX: usize = 100;

/// The pause before another look after something was due that no claim took: another transaction may have locked it. It
/// doubles each time, up to the poll interval.
const PAUSE_WHEN_DUE: Duration = Duration::from_millis(5);

/// The pause before another look at a saga whose limit another session has locked, or whose claim the database has refused. A
/// claim that waits for the lock has slots.
const PAUSE_WHEN_POSTPONED: Duration = Duration::from_millis(500);

/// While runs wait for slots, the task looks this often for those of further sagas, and for suspects.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Claims, again and again, until the engine stops.
pub(super) async fn serve(engine: Arc<Engine>) {
    let (mut pause, mut looks) = (PAUSE_WHEN_DUE, Looks::new());
    while !engine.stopping.is_cancelled() {
        let queues = engine.topology.limited();
        let wait = if queues.is_empty() {
            // Until a saga has a limit.
            Duration::MAX
        } else {
            match claim_all(&engine, &queues, &mut looks).await {
                Ok(next) => {
                    pause = match next {
                        Some(_) => PAUSE_WHEN_DUE,
                        None => (pause * 2).min(engine.settings.poll_interval),
                    };
                    let wait = next.unwrap_or(pause);
                    looks.next_in(&queues).map_or(wait, |next_in| wait.min(next_in))
                }
                Err(error) => {
                    telemetry::operation_failed(engine.worker, "claim under a limit", &error);
                    looks = Looks::new();
                    engine.mark_in_doubt();
                    PAUSE_AFTER_FAILURE
                }
            }
        };
        tokio::select! {
            biased;
            () = engine.stopping.cancelled() => return,
            () = engine.wakeups.limited.notified() => {}
            () = tokio::time::sleep(wait.min(Duration::from_secs(3_600))) => {}
        }
    }
}

/// The last looks at sagas with limits.
struct Looks {
    of_sagas: BTreeMap<String, Look>,
    /// The sagas of which runs may be claimed now.
    turns: BTreeMap<String, Turn>,
    /// The last turns of sagas.
    last_turns: BTreeMap<String, LastTurn>,
    /// The number of turns so far.
    turn_count: u64,
    /// The topology of the positions, and of the turns.
    topology: i64,
    progress: QueueProgress,
}

/// The next turn of a saga.
#[derive(Default)]
struct Turn {
    freed: FreedKeys,
    /// Whether parked runs may return to their queue.
    may_return: bool,
    /// Whether a rate admits a further run.
    has_opened: bool,
    /// Whether there are free places of which other processes may not know.
    is_unoffered: bool,
}

/// The last turn of a saga.
#[derive(Clone, Copy, Default)]
struct LastTurn {
    /// The number of the turn; 0 if there was none.
    number: u64,
    /// Whether no run has begun in it.
    is_idle: bool,
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
    /// The key from which the next page begins.
    next_page: String,
    /// Whether the pages follow each other at once, up to the last one.
    is_hurried: bool,
    /// When a rate admits the next run.
    opens_at: Option<Instant>,
    /// Whether a limit of the saga was reached.
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
struct Due {
    freed: FreedKeys,
    /// Whether a rate admits a further run since the last look.
    has_opened: bool,
    /// Whether its rate admits none before a known time.
    is_closed: bool,
    /// Whether a limit of the saga was reached at the last look.
    was_reached: bool,
}

impl Looks {
    fn new() -> Self {
        Self {
            of_sagas: BTreeMap::new(),
            turns: BTreeMap::new(),
            last_turns: BTreeMap::new(),
            turn_count: 0,
            topology: 0,
            progress: QueueProgress::new(),
        }
    }

    /// Drops the positions in queues that are others: runs may have returned to them. And the turns, since all keys are looked at anew.
    fn follow(&mut self, topology: i64) {
        if self.topology != topology {
            (self.topology, self.progress) = (topology, QueueProgress::new());
            self.turns.clear();
        }
    }

    /// Gives a turn to each saga with a new ready run of one of these handlers, unless its limit is known to admit none.
    fn add_ready(&mut self, queues: &[LimitedQueue], handlers: &BTreeSet<String>) {
        let is_ready = |queue: &&LimitedQueue| queue.of.handlers.iter().any(|it| handlers.contains(it));
        for LimitedQueue { of, .. } in queues.iter().filter(is_ready) {
            let is_full = of.key_from.is_none() && self.is_reached(&of.saga);
            if !is_full && !self.is_postponed(&of.saga) && !self.is_closed(&of.saga) {
                self.turns.entry(of.saga.clone()).or_default();
            }
        }
    }

    /// Whether one of these sagas has a turn.
    fn has_turn(&self, queues: &[LimitedQueue]) -> bool {
        queues.iter().any(|queue| self.turns.contains_key(&queue.of.saga))
    }

    /// Takes the turn of the saga with the fewest runs in execution. Of several it is the one whose last turn was the earliest. A saga
    /// of which no run began in its last turn is passed over for as many turns as there are other sagas: it may have to park many runs.
    fn take_turn<'a>(
        &mut self,
        queues: &'a [LimitedQueue],
        running: &RunningCounts,
    ) -> Option<(&'a LimitedQueue, Turn)> {
        let due = queues.iter().filter(|queue| self.turns.contains_key(&queue.of.saga));
        let due: Vec<_> = due.collect();
        let others = due.len().saturating_sub(1) as u64;
        let next = due.into_iter().min_by_key(|queue| {
            let last = self.last_turns.get(&queue.of.saga).copied().unwrap_or_default();
            let runs: usize = queue.of.handlers.iter().map(|handler| running.of(handler)).sum();
            (last.is_idle && self.turn_count - last.number < others, runs, last.number)
        })?;
        Some((next, self.turns.remove(&next.of.saga)?))
    }

    /// Records a turn, and whether a run began in it.
    fn end_turn(&mut self, saga: &str, has_begun: bool) {
        self.turn_count += 1;
        self.last_turns.insert(saga.to_owned(), LastTurn { number: self.turn_count, is_idle: !has_begun });
    }

    /// Begins a look at a saga of which these keys may have free places.
    fn begin(&mut self, queue: &LimitedQueue, keys: Vec<String>, interval: Duration) -> Due {
        let (topology, now) = (queue.lanes.topology, Instant::now());
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
                next_page: String::new(),
                is_hurried: is_by_key,
                opens_at: None,
                is_reached: false,
                left: vec![],
                postponed_until: None,
            };
            self.of_sagas.insert(queue.of.saga.clone(), look);
            let freed = freed(keys, Some(String::new()));
            return Due { freed, has_opened: false, is_closed: false, was_reached: false };
        };
        let has_opened = look.opens_at.is_some_and(|at| at <= now);
        if has_opened {
            look.opens_at = None;
        }
        let is_closed = look.is_closed();
        look.postponed_until = None;
        let has_page = look.is_hurried || now.duration_since(look.page_at) >= interval;
        let keys = [std::mem::take(&mut look.left), keys].concat();
        let freed = freed(keys, has_page.then(|| look.next_page.clone()));
        Due { freed, has_opened, is_closed, was_reached: look.is_reached }
    }

    /// Records that a claim has gone through a page of keys, if it was asked for one, and from which key the next page begins.
    fn advance_page(&mut self, saga: &str, freed: &FreedKeys, next_page: Option<String>) {
        if let Some(look) = self.of_sagas.get_mut(saga).filter(|_| freed.page_from.is_some()) {
            look.page_at = Instant::now();
            look.is_hurried &= next_page.is_some();
            look.next_page = next_page.unwrap_or_default();
        }
    }

    /// Records what a claim has found.
    fn end(&mut self, saga: &str, claimed: &Claimed) {
        if let Some(look) = self.of_sagas.get_mut(saga) {
            look.is_reached = claimed.is_reached;
            look.opens_at = claimed.opens_in.map(|opens_in| Instant::now() + opens_in);
        }
    }

    /// Whether the next look at a saga is postponed.
    fn is_postponed(&self, saga: &str) -> bool {
        let until = self.of_sagas.get(saga).and_then(|look| look.postponed_until);
        until.is_some_and(|until| until > Instant::now())
    }

    /// Whether a limit of a saga was reached at the last claim.
    fn is_reached(&self, saga: &str) -> bool {
        self.of_sagas.get(saga).is_some_and(|look| look.is_reached)
    }

    /// Whether the rate of a saga admits no run before a known time.
    fn is_closed(&self, saga: &str) -> bool {
        self.of_sagas.get(saga).is_some_and(Look::is_closed)
    }

    /// Postpones the next look at a saga, with this turn: its limit was locked, or the claim was refused.
    fn postpone(&mut self, saga: &str, turn: Turn) {
        if let Some(look) = self.of_sagas.get_mut(saga) {
            (look.left, look.postponed_until) =
                (turn.freed.keys, Some(Instant::now() + PAUSE_WHEN_POSTPONED));
            look.opens_at = turn.has_opened.then(Instant::now).or(look.opens_at);
        }
    }

    /// In how long one of these sagas has to be looked at: a rate admits its next run, its look was postponed, there is a further
    /// page of keys, or the last claim may have missed a run.
    fn next_in(&self, queues: &[LimitedQueue]) -> Option<Duration> {
        let now = Instant::now();
        let looks = queues.iter().filter_map(|queue| self.of_sagas.get(&queue.of.saga));
        let next = looks.filter_map(|look| {
            let page = look.is_hurried.then_some(now);
            look.postponed_until.or_else(|| page.or(look.opens_at))
        });
        let next = next.chain(self.progress.look_back_at()).min()?;
        Some(next.saturating_duration_since(now))
    }
}

/// Claims from all queues that have a ready run or a free place, in turns, until there are no more runs or a look at further
/// sagas is due. Returns when to look again; none if something is due that was not taken. A saga whose limit is locked, or whose
/// claim the database refuses, holds up no other.
async fn claim_all(
    engine: &Arc<Engine>,
    queues: &[LimitedQueue],
    looks: &mut Looks,
) -> sqlx::Result<Option<Duration>> {
    let (mut reached, began) = (BTreeSet::new(), Instant::now());
    look(engine, queues, looks).await?;
    while looks.has_turn(queues) && !engine.stopping.is_cancelled() {
        if engine.slots.available_permits() == 0 {
            offer_all(engine, queues, looks).await?;
        }
        let Some(slots) = acquire_slots(engine, false).await else { break };
        if began.elapsed() >= LOOK_INTERVAL {
            // Runs of others may have become ready while it waited for a slot.
            look(engine, queues, looks).await?;
        }
        looks.add_ready(queues, &engine.wakeups.take_ready());
        let Some((queue, turn)) = looks.take_turn(queues, &engine.running_counts) else { break };
        claim_turn(engine, queue, turn, slots, looks, &mut reached).await?;
        if began.elapsed() >= LOOK_INTERVAL {
            break;
        }
    }
    // Of the others, the end of a run wakes the task, or the time of the next look is known.
    let is_open = |queue: &&LimitedQueue| {
        let saga = &queue.of.saga;
        !reached.contains(saga) && !looks.is_postponed(saga) && !looks.is_closed(saga)
    };
    let open: Vec<_> = queues.iter().filter(is_open).cloned().collect();
    let next = next_look(engine, &open, looks).await?;
    Ok(if looks.has_turn(queues) { Some(Duration::ZERO) } else { next })
}

/// Finds the sagas of which runs may be claimed now.
async fn look(engine: &Engine, queues: &[LimitedQueue], looks: &mut Looks) -> sqlx::Result<()> {
    let lanes = all_lanes(queues);
    looks.follow(lanes.topology);
    // The query finds these runs.
    engine.wakeups.take_ready();
    let ready = engine.store.lanes_ready(&lanes, looks.progress.cursors()).await?;
    for queue in queues {
        let saga = &queue.of.saga;
        if looks.is_postponed(saga) {
            continue;
        }
        let FreedPlaces { any: has_ended, keys } = engine.wakeups.freed.take(&queue.of.handlers);
        let due = looks.begin(queue, keys, engine.settings.poll_interval);
        let Due { freed, has_opened, is_closed, was_reached } = due;
        let is_ready = queue.lanes.each().any(|lane| ready.each().any(|it| it == lane));
        // Parked runs that a rate admits are in no queue.
        let may_return = queue.of.key_from.is_some() && (has_opened || has_ended && was_reached);
        if !freed.is_empty() || may_return || is_ready && !is_closed {
            let turn = Turn { freed, may_return, has_opened, is_unoffered: has_ended || has_opened };
            looks.turns.entry(saga.clone()).or_default().add(turn);
        }
    }
    Ok(())
}

/// Leaves the free places of all sagas to other processes, since this one has no slot.
async fn offer_all(engine: &Arc<Engine>, queues: &[LimitedQueue], looks: &mut Looks) -> sqlx::Result<()> {
    for queue in queues {
        let saga = &queue.of.saga;
        let Some(turn) = looks.turns.get_mut(saga).filter(|turn| turn.is_unoffered) else { continue };
        turn.is_unoffered = false;
        match offer(engine, queue, &turn.freed, turn.may_return).await? {
            Offer::Places { next_page } => {
                let freed = std::mem::take(&mut turn.freed);
                looks.advance_page(saga, &freed, next_page);
            }
            Offer::Nothing => {}
            Offer::Refused => {
                let turn = looks.turns.remove(saga).unwrap_or_default();
                looks.postpone(saga, turn);
            }
        }
    }
    Ok(())
}

/// Claims runs of one saga, once. If there may be more, the saga has a further turn.
async fn claim_turn(
    engine: &Arc<Engine>,
    queue: &LimitedQueue,
    turn: Turn,
    slots: OwnedSemaphorePermit,
    looks: &mut Looks,
    reached: &mut BTreeSet<String>,
) -> sqlx::Result<()> {
    let saga = &queue.of.saga;
    let claim = claim_from(engine, queue, None, slots, &turn.freed, &mut looks.progress).await;
    let claimed = unless_refused(engine, queue, claim)?;
    let Some(mut claimed) = claimed.filter(|claimed| !claimed.is_locked) else {
        looks.end_turn(saga, false);
        looks.postpone(saga, turn);
        return Ok(());
    };
    looks.end_turn(saga, claimed.has_begun);
    looks.advance_page(saga, &turn.freed, claimed.next_page.take());
    looks.end(saga, &claimed);
    if claimed.is_full {
        looks.turns.insert(saga.clone(), Turn::default());
    }
    match claimed.is_reached {
        true => reached.insert(saga.clone()),
        false => reached.remove(saga),
    };
    if claimed.has_unclaimed {
        // These do not report the end of their execution.
        looks.of_sagas.remove(saga);
        engine.wakeups.limited.notify_one();
    }
    Ok(())
}

/// The result of a claim of runs of one saga; none if the database has refused it, which is reported.
fn unless_refused<T>(
    engine: &Engine,
    queue: &LimitedQueue,
    claimed: sqlx::Result<T>,
) -> sqlx::Result<Option<T>> {
    match claimed {
        Err(error) if !is_transient(&error) => {
            telemetry::claim_refused(engine.worker, &queue.of.saga, &error);
            engine.mark_in_doubt();
            Ok(None)
        }
        claimed => claimed.map(Some),
    }
}

/// What other processes are offered.
enum Offer {
    /// The places that have become free here. The next page of keys begins from this key, if there is one.
    Places { next_page: Option<String> },
    /// Nothing: this process has a slot, or the limit is locked.
    Nothing,
    /// Nothing, since the database refuses.
    Refused,
}

/// Leaves the places that have become free here to other processes, since this one has no slot.
async fn offer(
    engine: &Arc<Engine>,
    queue: &LimitedQueue,
    freed: &FreedKeys,
    may_return: bool,
) -> sqlx::Result<Offer> {
    let mut next_page = None;
    if may_return || !freed.is_empty() {
        // It takes no run, so it needs no key, and no position in a queue.
        let (key_of, cursors) = (|_: &Candidate| String::new(), &QueueCursors::default());
        let claimer = engine.claimer();
        let request =
            LimitedRequest { claimer, queue, slots: 0, suspect: None, freed, cursors, key_of: &key_of };
        let Some(offered) = unless_refused(engine, queue, engine.store.claim_limited(request).await)? else {
            return Ok(Offer::Refused);
        };
        if offered.is_locked {
            return Ok(Offer::Nothing);
        }
        next_page = offered.next_page;
    }
    engine.wakeups.others.notify_one();
    Ok(Offer::Places { next_page })
}

/// Claims a suspect if one is due, and returns when the next run of these queues is ready; none if one is. If the database refuses
/// the claim, the saga is postponed, so that the next look finds the suspects of others.
async fn next_look(
    engine: &Arc<Engine>,
    queues: &[LimitedQueue],
    looks: &mut Looks,
) -> sqlx::Result<Option<Duration>> {
    let poll = engine.settings.poll_interval;
    let lanes = all_lanes(queues);
    if lanes.len() == 0 {
        return Ok(Some(poll));
    }
    let cursors = looks.progress.cursors();
    let due = engine.store.next_due(&lanes, engine.worker, engine.suspects.claim(), cursors).await?;
    if let Some(suspect) = due.suspect {
        let queue = queues.iter().find(|queue| queue.lanes.each().any(|lane| lane == suspect.lane()));
        if let Some(queue) = queue {
            let Some(slot) = acquire_slots(engine, true).await else { return Ok(None) };
            let (freed, progress) = (FreedKeys::default(), &mut looks.progress);
            let claimed = claim_from(engine, queue, Some(&suspect), slot, &freed, progress).await;
            if unless_refused(engine, queue, claimed)?.is_none() {
                let turn = looks.turns.remove(&queue.of.saga).unwrap_or_default();
                looks.postpone(&queue.of.saga, turn);
            }
        }
    }
    match due.seconds {
        Some(seconds) if seconds <= 0.0 => Ok(None),
        Some(seconds) => Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(poll).min(poll))),
        None => Ok(Some(poll)),
    }
}

/// The result of a claim, apart from the runs, which are started.
struct Claimed {
    /// Whether there may be more to claim.
    is_full: bool,
    /// Whether another session has locked the limit.
    is_locked: bool,
    is_reached: bool,
    /// In how long a rate admits the next run.
    opens_in: Option<Duration>,
    /// Whether a run was started.
    has_begun: bool,
    /// Whether a claimed run could not be started.
    has_unclaimed: bool,
    /// The key from which the next page of keys begins, if there is one.
    next_page: Option<String>,
}

/// Claims from one queue as many runs as there are slots, or this suspect. Looks only at runs that became ready since `progress`,
/// and advances that.
async fn claim_from(
    engine: &Arc<Engine>,
    queue: &LimitedQueue,
    suspect: Option<&Suspect>,
    mut slots: OwnedSemaphorePermit,
    freed: &FreedKeys,
    progress: &mut QueueProgress,
) -> sqlx::Result<Claimed> {
    // Until they are in flight: their ids are not known before.
    let claims = engine.unlisted_claims.read().await;
    let sagas = engine.sagas();
    let key_of = |run: &Candidate| {
        let saga = sagas.find(&run.topic, &run.handler);
        let saga = saga.filter(|saga| saga.handler.limits().by == queue.of.key_from.as_deref());
        saga.and_then(|saga| key(saga, run)).unwrap_or_default()
    };
    let cursors = progress.cursors();
    let request = LimitedRequest {
        claimer: engine.claimer(),
        queue,
        slots: slots.num_permits(),
        suspect,
        freed,
        cursors,
        key_of: &key_of,
    };
    let LimitedClaim { runs, is_full, is_locked, is_reached, opens_in, next_page, taken } =
        engine.store.claim_limited(request).await?;
    cursors.extend(taken);
    let opens_in = opens_in.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let (has_begun, has_unclaimed) = (runs.iter().any(Result::is_ok), runs.iter().any(Result::is_err));
    let claimed = Claimed { is_full, is_locked, is_reached, opens_in, has_begun, has_unclaimed, next_page };
    match suspect {
        Some(_) => {
            for run in runs {
                match run {
                    Ok(run) if engine.suspects.claim() == SuspectClaim::Allowed => {
                        let slot = slots.split(1).expect("a claim has a slot");
                        claim::start_suspect(engine, run, slot);
                    }
                    run => claim::start_claimed(engine, vec![run], &mut slots).await,
                }
            }
        }
        None => claim::start_claimed(engine, runs, &mut slots).await,
    }
    drop(claims);
    Ok(claimed)
}

/// The key of a run. None if its message cannot be decoded, its function panics, or the key cannot be stored: such runs
/// count together.
fn key(saga: &RunnableSaga, run: &Candidate) -> Option<String> {
    let key = boundary::run(&run.handler, || {
        let message = saga.handler.decode(&run.topic, &run.payload).ok()?;
        saga.handler.limit_key(&*message)
    });
    key.ok()?.filter(|key| refused_key(key).is_none())
}

/// A slot, and up to half of those that are free: the rest is for sagas without limits. None when the engine stops.
async fn acquire_slots(engine: &Engine, only_one: bool) -> Option<OwnedSemaphorePermit> {
    let first = tokio::select! {
        biased;
        () = engine.stopping.cancelled() => return None,
        first = engine.slots.clone().acquire_owned() => first,
    };
    let mut slots = first.ok()?;
    let more = if only_one { 0 } else { (engine.slots.available_permits() / 2).min(BATCH_MAX - 1) };
    let more = u32::try_from(more).unwrap_or(0);
    if let Ok(more) = engine.slots.clone().try_acquire_many_owned(more) {
        slots.merge(more);
    }
    Some(slots)
}

/// The lanes of all queues.
fn all_lanes(queues: &[LimitedQueue]) -> Lanes {
    let mut all = Lanes::default();
    for LimitedQueue { lanes, .. } in queues {
        all.topology = lanes.topology;
        all.extend(lanes);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LimitedSaga;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn queue(topology: i64) -> LimitedQueue {
        let of = LimitedSaga { saga: "saga".into(), key_from: Some("key".into()), ..LimitedSaga::default() };
        LimitedQueue { of, lanes: Lanes { topology, ..Lanes::default() } }
    }

    /// The page of the next look, of which the next one begins with that key.
    fn page(looks: &mut Looks, topology: i64, next: Option<&str>) -> Option<String> {
        let freed = looks.begin(&queue(topology), vec![], INTERVAL).freed;
        looks.advance_page("saga", &freed, next.map(str::to_owned));
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
    async fn postponed_look_goes_through_its_keys_and_its_page_later() {
        let mut looks = Looks::new();
        let freed = looks.begin(&queue(1), vec!["k".into()], INTERVAL).freed;
        let expected = FreedKeys { keys: vec!["k".into()], page_from: Some(String::new()) };
        assert_eq!(freed, expected);
        looks.postpone("saga", Turn { freed, ..Turn::default() });
        assert_eq!(looks.next_in(&[queue(1)]), Some(PAUSE_WHEN_POSTPONED));
        assert_eq!(looks.begin(&queue(1), vec![], INTERVAL).freed, expected);
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
        looks.end_turn(&of.saga, has_begun);
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
        let mut turn_after = |handlers: &[&str]| {
            looks.add_ready(&queues, &handlers.iter().map(|handler| (*handler).to_owned()).collect());
            looks.take_turn(&queues, &running).map(|(queue, _)| queue.of.saga.clone())
        };
        assert_eq!(turn_after(&["without a limit"]), None);
        assert_eq!(turn_after(&["former b"]).as_deref(), Some("b"));
        looks.begin(&queues[1], vec![], INTERVAL);
        let b = BTreeSet::from(["b".to_owned()]);
        let claimed = |is_reached, opens_in| Claimed {
            is_full: false,
            is_locked: false,
            is_reached,
            opens_in,
            has_begun: true,
            has_unclaimed: false,
            next_page: None,
        };
        looks.end("b", &claimed(true, None));
        looks.add_ready(&queues, &b);
        assert!(!looks.has_turn(&queues), "its limit is reached");
        let mut by_key = queues.clone();
        by_key[1].of.key_from = Some("key".into());
        looks.add_ready(&by_key, &b);
        assert!(looks.turns.remove("b").is_some(), "the run may have another key");
        looks.end("b", &claimed(true, Some(INTERVAL)));
        looks.add_ready(&by_key, &b);
        assert!(!looks.has_turn(&queues), "its rate admits none yet");
        looks.end("b", &claimed(false, None));
        looks.postpone("b", Turn::default());
        looks.add_ready(&queues, &b);
        assert!(!looks.has_turn(&queues), "its limit is locked");
    }

    #[tokio::test(start_paused = true)]
    async fn positions_are_those_of_one_topology() {
        let mut looks = Looks::new();
        looks.follow(1);
        let lane = ("topic", "handler", 0);
        looks.progress.cursors().take(lane, scoop_core::Priority::Normal, time::OffsetDateTime::UNIX_EPOCH);
        looks.follow(1);
        assert!(looks.progress.cursors().may_skip_runs());
        assert!(looks.progress.look_back_at().is_some());
        looks.follow(2);
        assert!(!looks.progress.cursors().may_skip_runs());
    }
}
