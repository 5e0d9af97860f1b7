//! Claims runs of sagas with limits and starts them.
//!
//! One task for all such sagas. No other statement claims their runs: a claim holds the lock of the limits, counts the runs in
//! execution and those that began in the last period, and takes no more than the limits admit. So it is exact across processes.
//! The task waits for slots and for the locks by itself, so that claims of other sagas never do.
//!
//! A limit by key needs the keys of runs before they are claimed, which follow from their messages. The claim of due runs computes
//! them. It parks the runs whose key has no place: they leave their queue, so that each of them is passed once. When a run has
//! ended, the next run of its key returns to its queue ([`FreedKeys`]). Keys whose runs ended unseen, in a process that died, are
//! found when the topology changes and at the poll interval.
//!
//! A claim says when a rate admits the next run. The task looks then: no run is claimed before by looking more often. The runs of
//! a saga that has reached its rate stay in their queue; those of a key that has reached its rate are parked, and return to it at that time.
//!
//! A claim waits for the lock of a limit for a moment only, since it has slots meanwhile. While another session holds that lock, its
//! saga is looked at twice a second, and holds up no other.
//!
//! It looks when a run of such a saga has ended in this process, when the claimer is woken, when the next run is due or is admitted
//! by its rate, and otherwise at the poll interval.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use scoop_core::refused_key;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::claim;
use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use super::slots::FreedPlaces;
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

/// Claims, again and again, until the engine stops.
pub(super) async fn serve(engine: Arc<Engine>) {
    let (mut pause, mut looks) = (PAUSE_WHEN_DUE, Looks::default());
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
                    looks = Looks::default();
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
#[derive(Default)]
struct Looks(BTreeMap<String, Look>);

/// The last looks at one saga.
struct Look {
    /// The topology of these looks.
    topology: i64,
    /// When all its keys were looked at.
    all_keys_at: Instant,
    /// When a rate admits the next run.
    opens_at: Option<Instant>,
    /// Whether a limit of the saga was reached.
    is_reached: bool,
    /// The freed keys that a postponed look could not go through.
    left: Option<FreedKeys>,
    /// No look before this time, since the limit was locked, or the claim was refused.
    postponed_until: Option<Instant>,
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
    /// Begins a look at a saga of which these keys may have free places.
    fn begin(&mut self, queue: &LimitedQueue, keys: Vec<String>, interval: Duration) -> Due {
        let (topology, now) = (queue.lanes.topology, Instant::now());
        let look = self.0.get_mut(&queue.of.saga).filter(|look| look.topology == topology);
        let is_by_key = queue.of.key_from.is_some();
        let Some(look) = look else {
            let look = Look {
                topology,
                all_keys_at: now,
                opens_at: None,
                is_reached: false,
                left: None,
                postponed_until: None,
            };
            self.0.insert(queue.of.saga.clone(), look);
            let freed = if is_by_key { FreedKeys::Any } else { FreedKeys::Some(vec![]) };
            return Due { freed, has_opened: false, is_closed: false, was_reached: false };
        };
        let has_opened = look.opens_at.is_some_and(|at| at <= now);
        if has_opened {
            look.opens_at = None;
        }
        let is_closed = look.is_reached && look.opens_at.is_some();
        look.postponed_until = None;
        let looks_at_all = now.duration_since(look.all_keys_at) >= interval;
        let freed = match look.left.take() {
            _ if !is_by_key => FreedKeys::Some(vec![]),
            left if looks_at_all || left == Some(FreedKeys::Any) => {
                look.all_keys_at = now;
                FreedKeys::Any
            }
            Some(FreedKeys::Some(left)) => FreedKeys::Some([left, keys].concat()),
            _ => FreedKeys::Some(keys),
        };
        Due { freed, has_opened, is_closed, was_reached: look.is_reached }
    }

    /// Records what a claim has found.
    fn end(&mut self, saga: &str, claimed: &Claimed) {
        if let Some(look) = self.0.get_mut(saga) {
            look.is_reached = claimed.is_reached;
            look.opens_at = claimed.opens_in.map(|opens_in| Instant::now() + opens_in);
        }
    }

    /// Whether the next look at a saga is postponed.
    fn is_postponed(&self, saga: &str) -> bool {
        let until = self.0.get(saga).and_then(|look| look.postponed_until);
        until.is_some_and(|until| until > Instant::now())
    }

    /// Postpones the next look at a saga, which then goes through these keys: its limit was locked, or the claim was refused.
    fn postpone(&mut self, saga: &str, freed: FreedKeys, has_opened: bool) {
        if let Some(look) = self.0.get_mut(saga) {
            (look.left, look.postponed_until) = (Some(freed), Some(Instant::now() + PAUSE_WHEN_POSTPONED));
            look.opens_at = has_opened.then(Instant::now).or(look.opens_at);
        }
    }

    /// In how long one of these sagas has to be looked at: a rate admits its next run, or its look was postponed.
    fn next_in(&self, queues: &[LimitedQueue]) -> Option<Duration> {
        let looks = queues.iter().filter_map(|queue| self.0.get(&queue.of.saga));
        let next = looks.filter_map(|look| look.postponed_until.or(look.opens_at)).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}

/// Claims from all queues that have a ready run or a free place. Returns when to look again; none if something is due that was
/// not taken. A saga whose limit is locked, or whose claim the database refuses, holds up no other.
async fn claim_all(
    engine: &Arc<Engine>,
    queues: &[LimitedQueue],
    looks: &mut Looks,
) -> sqlx::Result<Option<Duration>> {
    let ready = engine.store.lanes_ready(&all_lanes(queues), &QueueCursors::default()).await?;
    let mut reached = vec![];
    for queue in queues {
        if looks.is_postponed(&queue.of.saga) {
            reached.push(&queue.of.saga);
            continue;
        }
        let FreedPlaces { any: has_ended, keys } = engine.wakeups.freed.take(&queue.of.handlers);
        let due = looks.begin(queue, keys, engine.settings.poll_interval);
        let Due { mut freed, has_opened, is_closed, was_reached } = due;
        let is_ready = queue.lanes.each().any(|lane| ready.each().any(|it| it == lane));
        // Parked runs that a rate admits are in no queue.
        let may_return = queue.of.key_from.is_some() && (has_opened || has_ended && was_reached);
        let mut is_due = !freed.is_empty() || may_return || is_ready && !is_closed;
        if is_closed {
            reached.push(&queue.of.saga);
        }
        while is_due && !engine.stopping.is_cancelled() {
            let has_slot = engine.slots.available_permits() > 0;
            let mut claimed = None;
            let offer = match !has_slot && (has_ended || has_opened) {
                true => offer(engine, queue, &freed, may_return).await?,
                false => Offer::Nothing,
            };
            if offer == Offer::Places {
                freed = FreedKeys::Some(vec![]);
            }
            if offer != Offer::Refused {
                claimed = unless_refused(engine, queue, claim_from(engine, queue, None, &freed).await)?;
            }
            let Some(claimed) = claimed.filter(|claimed| !claimed.is_locked) else {
                looks.postpone(&queue.of.saga, freed, has_opened);
                reached.push(&queue.of.saga);
                break;
            };
            freed = FreedKeys::Some(vec![]);
            looks.end(&queue.of.saga, &claimed);
            is_due = claimed.is_full;
            if claimed.is_reached {
                reached.push(&queue.of.saga);
            }
            if claimed.has_unclaimed {
                // These do not report the end of their execution.
                looks.0.remove(&queue.of.saga);
                engine.wakeups.limited.notify_one();
            }
        }
    }
    // The end of one of their runs is reported, and the time of their rate is known.
    let open: Vec<_> = queues.iter().filter(|queue| !reached.contains(&&queue.of.saga)).cloned().collect();
    next_look(engine, &open, looks).await
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
#[derive(PartialEq)]
enum Offer {
    /// The places that have become free here.
    Places,
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
    if may_return || !freed.is_empty() {
        // It takes no run, so it needs no key.
        let key_of = |_: &Candidate| String::new();
        let claimer = engine.claimer();
        let request = LimitedRequest { claimer, queue, slots: 0, suspect: None, freed, key_of: &key_of };
        let Some(offered) = unless_refused(engine, queue, engine.store.claim_limited(request).await)? else {
            return Ok(Offer::Refused);
        };
        if offered.is_locked {
            return Ok(Offer::Nothing);
        }
    }
    engine.wakeups.others.notify_one();
    Ok(Offer::Places)
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
    let due = engine.store.next_due(&lanes, engine.worker, engine.suspects.claim()).await?;
    if let Some(suspect) = due.suspect {
        let queue = queues.iter().find(|queue| queue.lanes.each().any(|lane| lane == suspect.lane()));
        if let Some(queue) = queue {
            let claimed = claim_from(engine, queue, Some(&suspect), &FreedKeys::Some(vec![])).await;
            if unless_refused(engine, queue, claimed)?.is_none() {
                looks.postpone(&queue.of.saga, FreedKeys::Some(vec![]), false);
            }
        }
    }
    match due.seconds {
        Some(seconds) if seconds <= 0.0 => Ok(None),
        Some(seconds) => Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(poll).min(poll))),
        None => Ok(Some(poll)),
    }
}

/// What a claim has taken.
#[derive(Default)]
struct Claimed {
    /// Whether there may be more to claim.
    is_full: bool,
    /// Whether another session has locked the limit.
    is_locked: bool,
    is_reached: bool,
    /// In how long a rate admits the next run.
    opens_in: Option<Duration>,
    /// Whether a claimed run could not be started.
    has_unclaimed: bool,
}

/// Claims from one queue as many runs as there are slots, or this suspect.
async fn claim_from(
    engine: &Arc<Engine>,
    queue: &LimitedQueue,
    suspect: Option<&Suspect>,
    freed: &FreedKeys,
) -> sqlx::Result<Claimed> {
    let Some(mut slots) = acquire_slots(engine, suspect.is_some()).await else {
        return Ok(Claimed::default());
    };
    // Until they are in flight: their ids are not known before.
    let claims = engine.unlisted_claims.read().await;
    let sagas = engine.sagas();
    let key_of = |run: &Candidate| {
        let saga = sagas.find(&run.topic, &run.handler);
        let saga = saga.filter(|saga| saga.handler.limits().by == queue.of.key_from.as_deref());
        saga.and_then(|saga| key(saga, run)).unwrap_or_default()
    };
    let request = LimitedRequest {
        claimer: engine.claimer(),
        queue,
        slots: slots.num_permits(),
        suspect,
        freed,
        key_of: &key_of,
    };
    let LimitedClaim { runs, is_full, is_locked, is_reached, opens_in } =
        engine.store.claim_limited(request).await?;
    let opens_in = opens_in.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let has_unclaimed = runs.iter().any(Result::is_err);
    let claimed = Claimed { is_full, is_locked, is_reached, opens_in, has_unclaimed };
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
