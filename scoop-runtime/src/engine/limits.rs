//! Claims runs of sagas with limits and starts them.
//!
//! One task for all such sagas. No other statement claims their runs: a claim holds the lock of the limits, counts the runs in
//! execution and those that began in the last period, and takes no more than the limits admit. So it is exact across processes.
//! The task waits for slots and for the locks by itself, so that claims of other sagas never do.
//!
//! A limit by key needs the keys of runs before they are claimed, which follow from their messages. The claim of due runs computes
//! them. It parks the runs whose key has reached its limit: they leave their queue, so that each of them is passed once. When a run has
//! ended, the next run of its key returns to its queue ([`FreedKeys`]). Keys whose runs ended unseen, in a process that died, are
//! found in pages: one page at each poll interval, and all of them one after the other when the topology has changed.
//!
//! A claim says when a rate admits the next run. The task checks then: checking more often claims no run earlier. The runs of
//! a saga that has reached its rate stay in their queue; those of a key that has reached its rate are parked, and return to it at that time.
//!
//! A claim is of one saga. Each slot goes to the saga with the fewest runs in execution in this process, so that the
//! backlog of one saga holds up no other. While there are more runs than slots, the task looks for the runs of further sagas, and
//! for suspects, after intervals ([`CHECK_INTERVAL`]), not at each claim. A saga for which this process has made a run ready has its
//! claim without such a check.
//!
//! A claim may take long, since it parks many runs or waits for a lock. A second one begins beside it ([`CLAIMS_MAX`]) if its saga has
//! no backlog, and no more runs than the saga of the first one. A saga has one claim under way at most.
//!
//! A claim has a connection of the engine until it commits. Beside another one it takes a permit of the reads for clients: so claims and these
//! reads leave one of the three connections to other tasks. Without a free permit the second claim begins later, and that of a suspect
//! waits until the first one has ended.
//!
//! A claim waits for the lock of a limit for a moment only, since it has slots meanwhile. While another session holds that lock, its
//! saga is looked at twice a second, and holds up no other.
//!
//! The task checks when a run of such a saga has ended in this process, when the claimer is woken, when the next run is due or is admitted
//! by its rate, and otherwise at the poll interval.

mod claims;
mod scheduler;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use crate::store::{Candidate, ClaimQueues, FreedKeys, LimitedQueue, LimitedRequest, QueueCursors, ReadPage};
use crate::telemetry;
use claims::{
    ClaimConnections, Claims, EndedClaim, acquire_slot, acquire_slots, claim_from, try_acquire_slots,
    unless_refused,
};
use scheduler::{CheckReason, PendingClaim, Scheduler};

/// The number of claims under way at a time, beside that of a suspect. There are fewer while no connection is free for them
/// ([`ClaimConnections`]).
const CLAIMS_MAX: usize = 2;

/// The pause before another scan after something was due that no claim took: another transaction may have locked it. It
/// doubles each time, up to the poll interval.
const PAUSE_WHEN_DUE: Duration = Duration::from_millis(5);

/// The pause before another scan at a saga whose limit another session has locked, or whose claim the database has refused. A
/// claim that waits for the lock has slots.
const PAUSE_WHEN_POSTPONED: Duration = Duration::from_millis(500);

/// The interval of checks for runs of further sagas, and for suspects, while runs wait for slots.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Claims, again and again, until the engine stops.
pub(super) async fn serve(engine: Arc<Engine>) {
    let (mut pause, mut limits) = (PAUSE_WHEN_DUE, Scheduler::new());
    let mut claims = Claims::new(engine.store.read_permits());
    while !engine.stopping.is_cancelled() {
        let queues = engine.topology.limited();
        let wait = if queues.is_empty() {
            // Until a saga has a limit.
            Duration::MAX
        } else {
            match claim_all(&engine, &queues, &mut limits, &mut claims).await {
                Ok(next) => {
                    pause = match next {
                        Some(_) => PAUSE_WHEN_DUE,
                        None => (pause * 2).min(engine.settings.poll_interval),
                    };
                    let wait = next.unwrap_or(pause);
                    limits.next_in(&queues).map_or(wait, |next_in| wait.min(next_in))
                }
                Err(error) => {
                    telemetry::operation_failed(engine.worker, "claim under a limit", &error);
                    limits.forget();
                    engine.mark_in_doubt();
                    PAUSE_AFTER_FAILURE
                }
            }
        };
        tokio::select! {
            biased;
            () = engine.stopping.cancelled() => break,
            () = engine.wakeups.limited.notified() => {}
            () = tokio::time::sleep(wait.min(Duration::from_secs(3_600))) => {}
        }
    }
    // They start what they claim.
    while claims.next_ended().await.is_some() {}
}

/// Claims from all queues that have a ready run or free capacity, one saga after the other, until there are no more runs or a
/// check of further sagas is due. Returns when to check again; none if something is due that was not taken. A saga whose limit is locked, or whose
/// claim the database refuses, holds up no other.
async fn claim_all(
    engine: &Arc<Engine>,
    queues: &[LimitedQueue],
    limits: &mut Scheduler,
    claims: &mut Claims,
) -> sqlx::Result<Option<Duration>> {
    let (mut reached, began) = (BTreeSet::new(), Instant::now());
    find_ready(engine, queues, limits).await?;
    let mut is_woken = false;
    loop {
        begin_claims(engine, queues, limits, claims, began).await?;
        if !limits.has_claims() {
            break;
        }
        tokio::select! {
            biased;
            () = engine.stopping.cancelled() => break,
            Some(ended) = claims.next_ended() => record(engine, ended, limits, &mut reached)?,
            () = engine.wakeups.limited.notified() => is_woken = true,
            () = tokio::time::sleep_until(began + CHECK_INTERVAL) => {}
        }
        if began.elapsed() >= CHECK_INTERVAL {
            break;
        }
    }
    if is_woken {
        // Not all that it was woken for is found without a scan.
        engine.wakeups.limited.notify_one();
    }
    // Of the others, the end of a run or of a claim wakes the task, or the time of the next scan is known.
    let is_open = |queue: &&LimitedQueue| {
        let saga = &queue.of.saga;
        let waits = limits.is_claiming(saga) || limits.is_postponed(saga) || limits.is_closed(saga);
        !reached.contains(saga) && !waits
    };
    let open: Vec<_> = queues.iter().filter(is_open).cloned().collect();
    let next = find_next(engine, &open, limits, &claims.connections).await?;
    Ok(if limits.has_pending(queues) || limits.has_claims() { Some(Duration::ZERO) } else { next })
}

/// Begins claims, as many as may be under way and have a connection. Waits for a slot while none is.
async fn begin_claims(
    engine: &Arc<Engine>,
    queues: &[LimitedQueue],
    limits: &mut Scheduler,
    claims: &mut Claims,
    began: Instant,
) -> sqlx::Result<()> {
    loop {
        limits.add_ready(queues, &engine.wakeups.take_ready());
        if limits.next_pending(queues, &engine.running_counts).is_none() || engine.stopping.is_cancelled() {
            return Ok(());
        }
        // While none is under way, they have the one of their own.
        let Some(permit) = claims.connections.try_acquire() else { return Ok(()) };
        let slots = if limits.has_claims() {
            // Its end is looked for meanwhile.
            try_acquire_slots(engine)
        } else {
            let has_slot = engine.slots.available_permits() > 0;
            if has_slot || release_all(engine, queues, limits).await? {
                acquire_slots(engine).await
            } else {
                let within = tokio::time::timeout(PAUSE_WHEN_POSTPONED, acquire_slots(engine)).await;
                // It releases the capacity of the others again.
                let Ok(slots) = within else { continue };
                slots
            }
        };
        let Some(slots) = slots else { return Ok(()) };
        if began.elapsed() >= CHECK_INTERVAL {
            // Runs of others may have become ready while it waited for a slot.
            find_ready(engine, queues, limits).await?;
        }
        limits.add_ready(queues, &engine.wakeups.take_ready());
        let Some((queue, claim)) = limits.take_next(queues, &engine.running_counts) else {
            return Ok(());
        };
        let positions = limits.progress(&queue.of).positions();
        claims.begin(engine, queue.clone(), claim, positions, (slots, permit));
    }
}

/// Records what a claim has found. If there may be more, its saga has a further pending claim.
fn record(
    engine: &Engine,
    ended: EndedClaim,
    limits: &mut Scheduler,
    reached: &mut BTreeSet<String>,
) -> sqlx::Result<()> {
    let EndedClaim { saga, topology, positions, pending, claimed } = ended;
    limits.end_claim(&saga, claimed.as_ref().ok().and_then(Option::as_ref));
    let Some(mut claimed) = claimed?.filter(|claimed| !claimed.is_locked) else {
        limits.postpone(&saga, pending);
        return Ok(());
    };
    limits.advance(&saga, &positions, claimed.cursors.take());
    if topology != limits.topology {
        // It may be by a former limit.
        limits.add_pending(&saga, PendingClaim::default());
        return Ok(());
    }
    limits.advance_page(&saga, &pending.freed, std::mem::take(&mut claimed.page));
    limits.end(&saga, &claimed);
    if claimed.is_full {
        limits.add_pending(&saga, PendingClaim::default());
    }
    if claimed.has_unclaimed {
        // These do not report the end of their execution.
        limits.forget_saga(&saga);
        engine.wakeups.limited.notify_one();
    }
    match claimed.is_reached {
        true => reached.insert(saga),
        false => reached.remove(&saga),
    };
    Ok(())
}

/// Finds the sagas of which runs may be claimed now.
async fn find_ready(engine: &Engine, queues: &[LimitedQueue], limits: &mut Scheduler) -> sqlx::Result<()> {
    let all = all_claim_queues(queues);
    limits.follow(all.topology);
    limits.add_ready(queues, &engine.wakeups.take_ready());
    let (ready, seen) = engine.store.queues_ready(&all, &limits.cursors(queues)).await?;
    limits.record_ready(queues, &ready, &seen);
    for queue in queues {
        let saga = &queue.of.saga;
        if limits.is_postponed(saga) {
            continue;
        }
        let capacity = engine.wakeups.freed.take(&queue.of.handlers);
        let has_ended = capacity.any;
        let due = limits.begin(queue, capacity, engine.settings.poll_interval);
        let CheckReason { freed, has_opened, is_closed, was_reached } = due;
        // The claim under way may take these runs, and may have counted before such an end.
        let is_claiming = limits.is_claiming(saga);
        let is_ready = !is_claiming && queue.queues.each().any(|other| ready.each().any(|it| it == other));
        let is_uncounted = is_claiming && (has_opened || has_ended);
        // Parked runs that a rate admits are in no queue.
        let may_return = queue.of.key_from.is_some() && (has_opened || has_ended && was_reached);
        if !freed.is_empty() || may_return || is_uncounted || is_ready && !is_closed {
            let is_unreleased = has_ended || has_opened;
            limits.add_pending(saga, PendingClaim { freed, may_return, has_opened, is_unreleased });
        }
    }
    Ok(())
}

/// Leaves the freed capacity of all sagas to other processes, since this one has no slot. Returns whether none is left.
async fn release_all(engine: &Engine, queues: &[LimitedQueue], limits: &mut Scheduler) -> sqlx::Result<bool> {
    let mut is_all_released = true;
    for queue in queues {
        let saga = &queue.of.saga;
        if let Some(pending) = limits.unreleased(saga) {
            let (freed, may_return) = (pending.freed.clone(), pending.may_return);
            let positions = limits.progress(&queue.of).positions();
            let (released, advanced) = release(engine, queue, &freed, may_return, &positions.cursors).await?;
            limits.advance(saga, &positions, advanced);
            limits.end_release(saga, released);
            is_all_released &= limits.unreleased(saga).is_none();
        }
    }
    Ok(is_all_released)
}

/// What is left to other processes.
enum CapacityRelease {
    /// The capacity freed here, with the page of keys that was read.
    Released { page: ReadPage },
    /// Nothing, since another session has locked the limit.
    Nothing,
    /// Nothing, since the database refuses.
    Refused,
}

/// Leaves the capacity freed here to other processes, since this one has no slot.
async fn release(
    engine: &Engine,
    queue: &LimitedQueue,
    freed: &FreedKeys,
    may_return: bool,
    cursors: &QueueCursors,
) -> sqlx::Result<(CapacityRelease, Option<QueueCursors>)> {
    let (mut page, mut advanced) = (ReadPage::default(), None);
    if may_return || !freed.is_empty() {
        // It takes no run, so it needs no key.
        let key_of = |_: &Candidate| None;
        let claimer = engine.claimer();
        let request =
            LimitedRequest { claimer, queue, slots: 0, suspect: None, freed, cursors, key_of: &key_of };
        let Some(released) = unless_refused(engine, queue, engine.store.claim_limited(request).await)? else {
            return Ok((CapacityRelease::Refused, None));
        };
        if released.is_locked {
            return Ok((CapacityRelease::Nothing, None));
        }
        (page, advanced) = (released.page, released.cursors);
    }
    engine.wakeups.others.notify_one();
    Ok((CapacityRelease::Released { page }, advanced))
}

/// Claims a suspect if one is due, and returns when the next run of these queues is ready; none if one is. If the database refuses
/// the claim, the saga is postponed, so that the next scan finds the suspects of others.
async fn find_next(
    engine: &Arc<Engine>,
    queues: &[LimitedQueue],
    limits: &mut Scheduler,
    connections: &ClaimConnections,
) -> sqlx::Result<Option<Duration>> {
    let poll = engine.settings.poll_interval;
    let all = all_claim_queues(queues);
    if all.len() == 0 {
        return Ok(Some(poll));
    }
    let cursors = limits.known(queues);
    let due = engine.store.next_due(&all, engine.worker, engine.suspects.claim(), &cursors).await?;
    if let Some(suspect) = due.suspect {
        let queue = queues.iter().find(|queue| queue.queues.each().any(|other| other == suspect.queue()));
        if let Some(queue) = queue {
            let Some(slot) = acquire_slot(engine).await else { return Ok(None) };
            let permit = connections.acquire().await;
            let (freed, positions) = (FreedKeys::default(), limits.progress(&queue.of).positions());
            let claimed = claim_from(engine, queue, Some(&suspect), slot, &freed, &positions.cursors).await;
            drop(permit);
            match unless_refused(engine, queue, claimed)? {
                // A scan at one run advances no position.
                Some(_) => {}
                None => limits.postpone(&queue.of.saga, PendingClaim::default()),
            }
        }
    }
    match due.seconds {
        Some(seconds) if seconds <= 0.0 => Ok(None),
        Some(seconds) => Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(poll).min(poll))),
        None => Ok(Some(poll)),
    }
}

fn all_claim_queues(queues: &[LimitedQueue]) -> ClaimQueues {
    let mut joined = ClaimQueues::default();
    for LimitedQueue { queues: all, .. } in queues {
        joined.topology = all.topology;
        joined.extend(all);
    }
    joined
}
