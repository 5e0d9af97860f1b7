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
//! A claim may take long, since it parks many runs or waits for a lock. A second one begins beside it ([`CLAIMS_MAX`]) if its saga has
//! no backlog, and no more runs than the saga of the first one. A saga has one claim under way at most.
//!
//! A claim has a connection of the engine until it commits. Beside another one it takes a turn of the reads for clients: so claims and these
//! reads leave one of the three connections to other tasks. Without a free turn the second claim begins later, and that of a suspect
//! waits until the first one has ended.
//!
//! A claim waits for the lock of a limit for a moment only, since it has slots meanwhile. While another session holds that lock, its
//! saga is looked at twice a second, and holds up no other.
//!
//! The task looks when a run of such a saga has ended in this process, when the claimer is woken, when the next run is due or is admitted
//! by its rate, and otherwise at the poll interval.

mod claims;
mod looks;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use crate::store::{Candidate, FreedKeys, Lanes, LimitedQueue, LimitedRequest, QueueCursors, ReadPage};
use crate::telemetry;
use claims::{
    ClaimConnections, Claims, EndedClaim, acquire_slot, acquire_slots, claim_from, try_acquire_slots,
    unless_refused,
};
use looks::{Due, Looks, Turn};

/// The number of claims under way at a time, beside that of a suspect. There are fewer while no connection is free for them
/// ([`ClaimConnections`]).
const CLAIMS_MAX: usize = 2;

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
    let mut claims = Claims::new(engine.store.read_turns());
    while !engine.stopping.is_cancelled() {
        let queues = engine.topology.limited();
        let wait = if queues.is_empty() {
            // Until a saga has a limit.
            Duration::MAX
        } else {
            match claim_all(&engine, &queues, &mut looks, &mut claims).await {
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
                    looks.forget();
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

/// Claims from all queues that have a ready run or a free place, in turns, until there are no more runs or a look at further
/// sagas is due. Returns when to look again; none if something is due that was not taken. A saga whose limit is locked, or whose
/// claim the database refuses, holds up no other.
async fn claim_all(
    engine: &Arc<Engine>,
    queues: &[LimitedQueue],
    looks: &mut Looks,
    claims: &mut Claims,
) -> sqlx::Result<Option<Duration>> {
    let (mut reached, began) = (BTreeSet::new(), Instant::now());
    look(engine, queues, looks).await?;
    let mut is_woken = false;
    loop {
        begin_claims(engine, queues, looks, claims, began).await?;
        if !looks.is_any_under_way() {
            break;
        }
        tokio::select! {
            biased;
            () = engine.stopping.cancelled() => break,
            Some(ended) = claims.next_ended() => record(engine, ended, looks, &mut reached)?,
            () = engine.wakeups.limited.notified() => is_woken = true,
            () = tokio::time::sleep_until(began + LOOK_INTERVAL) => {}
        }
        if began.elapsed() >= LOOK_INTERVAL {
            break;
        }
    }
    if is_woken {
        // Not all that it was woken for is found without a look.
        engine.wakeups.limited.notify_one();
    }
    // Of the others, the end of a run or of a claim wakes the task, or the time of the next look is known.
    let is_open = |queue: &&LimitedQueue| {
        let saga = &queue.of.saga;
        let waits = looks.is_under_way(saga) || looks.is_postponed(saga) || looks.is_closed(saga);
        !reached.contains(saga) && !waits
    };
    let open: Vec<_> = queues.iter().filter(is_open).cloned().collect();
    let next = next_look(engine, &open, looks, &claims.connections).await?;
    Ok(if looks.has_turn(queues) || looks.is_any_under_way() { Some(Duration::ZERO) } else { next })
}

/// Begins claims, as many as may be under way and have a connection. Waits for a slot while none is.
async fn begin_claims(
    engine: &Arc<Engine>,
    queues: &[LimitedQueue],
    looks: &mut Looks,
    claims: &mut Claims,
    began: Instant,
) -> sqlx::Result<()> {
    loop {
        looks.add_ready(queues, &engine.wakeups.take_ready());
        if looks.next_turn(queues, &engine.running_counts).is_none() || engine.stopping.is_cancelled() {
            return Ok(());
        }
        // While none is under way, they have the one of their own.
        let Some(permit) = claims.connections.try_acquire() else { return Ok(()) };
        let slots = if looks.is_any_under_way() {
            // Its end is looked for meanwhile.
            try_acquire_slots(engine)
        } else {
            let has_slot = engine.slots.available_permits() > 0;
            if has_slot || offer_all(engine, queues, looks).await? {
                acquire_slots(engine).await
            } else {
                let within = tokio::time::timeout(PAUSE_WHEN_POSTPONED, acquire_slots(engine)).await;
                // It offers the others again.
                let Ok(slots) = within else { continue };
                slots
            }
        };
        let Some(slots) = slots else { return Ok(()) };
        if began.elapsed() >= LOOK_INTERVAL {
            // Runs of others may have become ready while it waited for a slot.
            look(engine, queues, looks).await?;
        }
        looks.add_ready(queues, &engine.wakeups.take_ready());
        let Some((queue, turn)) = looks.take_turn(queues, &engine.running_counts) else { return Ok(()) };
        let positions = looks.progress(&queue.of).positions();
        claims.begin(engine, queue.clone(), turn, positions, (slots, permit));
    }
}

/// Records what a claim has found. If there may be more, its saga has a further turn.
fn record(
    engine: &Engine,
    ended: EndedClaim,
    looks: &mut Looks,
    reached: &mut BTreeSet<String>,
) -> sqlx::Result<()> {
    let EndedClaim { saga, topology, positions, turn, claimed } = ended;
    looks.end_turn(&saga, claimed.as_ref().ok().and_then(Option::as_ref));
    let Some(mut claimed) = claimed?.filter(|claimed| !claimed.is_locked) else {
        looks.postpone(&saga, turn);
        return Ok(());
    };
    looks.advance(&saga, &positions, claimed.cursors.take());
    if topology != looks.topology {
        // It may be by a former limit.
        looks.add_turn(&saga, Turn::default());
        return Ok(());
    }
    looks.advance_page(&saga, &turn.freed, std::mem::take(&mut claimed.page));
    looks.end(&saga, &claimed);
    if claimed.is_full {
        looks.add_turn(&saga, Turn::default());
    }
    if claimed.has_unclaimed {
        // These do not report the end of their execution.
        looks.look_anew(&saga);
        engine.wakeups.limited.notify_one();
    }
    match claimed.is_reached {
        true => reached.insert(saga),
        false => reached.remove(&saga),
    };
    Ok(())
}

/// Finds the sagas of which runs may be claimed now.
async fn look(engine: &Engine, queues: &[LimitedQueue], looks: &mut Looks) -> sqlx::Result<()> {
    let lanes = all_lanes(queues);
    looks.follow(lanes.topology);
    looks.add_ready(queues, &engine.wakeups.take_ready());
    let (ready, seen) = engine.store.lanes_ready(&lanes, &looks.cursors(queues)).await?;
    looks.looked(queues, &ready, &seen);
    for queue in queues {
        let saga = &queue.of.saga;
        if looks.is_postponed(saga) {
            continue;
        }
        let places = engine.wakeups.freed.take(&queue.of.handlers);
        let has_ended = places.any;
        let due = looks.begin(queue, places, engine.settings.poll_interval);
        let Due { freed, has_opened, is_closed, was_reached } = due;
        // The claim under way may take these runs, and may have counted before such an end.
        let is_under_way = looks.is_under_way(saga);
        let is_ready = !is_under_way && queue.lanes.each().any(|lane| ready.each().any(|it| it == lane));
        let is_uncounted = is_under_way && (has_opened || has_ended);
        // Parked runs that a rate admits are in no queue.
        let may_return = queue.of.key_from.is_some() && (has_opened || has_ended && was_reached);
        if !freed.is_empty() || may_return || is_uncounted || is_ready && !is_closed {
            let turn = Turn { freed, may_return, has_opened, is_unoffered: has_ended || has_opened };
            looks.add_turn(saga, turn);
        }
    }
    Ok(())
}

/// Leaves the free places of all sagas to other processes, since this one has no slot. Returns whether none is left to offer.
async fn offer_all(engine: &Arc<Engine>, queues: &[LimitedQueue], looks: &mut Looks) -> sqlx::Result<bool> {
    let mut is_done = true;
    for queue in queues {
        let saga = &queue.of.saga;
        if let Some(turn) = looks.unoffered(saga) {
            let (freed, may_return) = (turn.freed.clone(), turn.may_return);
            let positions = looks.progress(&queue.of).positions();
            let (offered, advanced) = offer(engine, queue, &freed, may_return, &positions.cursors).await?;
            looks.advance(saga, &positions, advanced);
            looks.end_offer(saga, offered);
            is_done &= looks.unoffered(saga).is_none();
        }
    }
    Ok(is_done)
}

/// What other processes are offered.
enum Offer {
    /// The places that have become free here, with the page of keys that was gone through.
    Places { page: ReadPage },
    /// Nothing, since another session has locked the limit.
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
    cursors: &QueueCursors,
) -> sqlx::Result<(Offer, Option<QueueCursors>)> {
    let (mut page, mut advanced) = (ReadPage::default(), None);
    if may_return || !freed.is_empty() {
        // It takes no run, so it needs no key.
        let key_of = |_: &Candidate| None;
        let claimer = engine.claimer();
        let request =
            LimitedRequest { claimer, queue, slots: 0, suspect: None, freed, cursors, key_of: &key_of };
        let Some(offered) = unless_refused(engine, queue, engine.store.claim_limited(request).await)? else {
            return Ok((Offer::Refused, None));
        };
        if offered.is_locked {
            return Ok((Offer::Nothing, None));
        }
        (page, advanced) = (offered.page, offered.cursors);
    }
    engine.wakeups.others.notify_one();
    Ok((Offer::Places { page }, advanced))
}

/// Claims a suspect if one is due, and returns when the next run of these queues is ready; none if one is. If the database refuses
/// the claim, the saga is postponed, so that the next look finds the suspects of others.
async fn next_look(
    engine: &Arc<Engine>,
    queues: &[LimitedQueue],
    looks: &mut Looks,
    connections: &ClaimConnections,
) -> sqlx::Result<Option<Duration>> {
    let poll = engine.settings.poll_interval;
    let lanes = all_lanes(queues);
    if lanes.len() == 0 {
        return Ok(Some(poll));
    }
    let cursors = looks.known(queues);
    let due = engine.store.next_due(&lanes, engine.worker, engine.suspects.claim(), &cursors).await?;
    if let Some(suspect) = due.suspect {
        let queue = queues.iter().find(|queue| queue.lanes.each().any(|lane| lane == suspect.lane()));
        if let Some(queue) = queue {
            let Some(slot) = acquire_slot(engine).await else { return Ok(None) };
            let permit = connections.acquire().await;
            let (freed, positions) = (FreedKeys::default(), looks.progress(&queue.of).positions());
            let claimed = claim_from(engine, queue, Some(&suspect), slot, &freed, &positions.cursors).await;
            drop(permit);
            match unless_refused(engine, queue, claimed)? {
                // A look at one run advances no position.
                Some(_) => {}
                None => looks.postpone(&queue.of.saga, Turn::default()),
            }
        }
    }
    match due.seconds {
        Some(seconds) if seconds <= 0.0 => Ok(None),
        Some(seconds) => Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(poll).min(poll))),
        None => Ok(Some(poll)),
    }
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
