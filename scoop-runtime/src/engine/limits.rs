//! Claims runs of sagas with limits and starts them.
//!
//! One task for all such sagas. No other statement claims their runs: a claim holds the lock of the limit, counts the runs in
//! execution, and takes no more than the limit admits. So it is exact across processes. The task waits for slots and for the
//! locks by itself, so that claims of other sagas never do.
//!
//! It looks when a run of such a saga has ended in this process, when the claimer is woken, when the next run is due, and
//! otherwise at the poll interval.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::claim;
use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use crate::store::{Lanes, LimitedClaim, LimitedQueue, QueueCursors, Suspect, SuspectClaim};
use crate::telemetry;

/// The number of runs that one claim takes.
const BATCH_MAX: usize = 100;

/// The pause before another look after something was due that no claim took: another transaction may have locked it. It
/// doubles each time, up to the poll interval.
const PAUSE_WHEN_DUE: Duration = Duration::from_millis(5);

/// Claims, again and again, until the engine stops.
pub(super) async fn serve(engine: Arc<Engine>) {
    let mut pause = PAUSE_WHEN_DUE;
    while !engine.stopping.is_cancelled() {
        let queues = engine.definitions.limited();
        let wait = if queues.is_empty() {
            // Until a saga has a limit.
            Duration::MAX
        } else {
            match claim_all(&engine, &queues).await {
                Ok(Some(wait)) => {
                    pause = PAUSE_WHEN_DUE;
                    wait
                }
                Ok(None) => {
                    pause = (pause * 2).min(engine.settings.poll_interval);
                    pause
                }
                Err(error) => {
                    telemetry::operation_failed(engine.worker, "claim under a limit", &error);
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

/// Claims from all queues that have a ready run. Returns when to look again; none if something is due that was not taken.
async fn claim_all(engine: &Arc<Engine>, queues: &[LimitedQueue]) -> sqlx::Result<Option<Duration>> {
    let ready = engine.store.lanes_ready(&all_lanes(queues), &QueueCursors::default()).await?;
    let has_ready = |queue: &&LimitedQueue| queue.lanes.each().any(|lane| ready.each().any(|it| it == lane));
    let mut reached = vec![];
    for queue in queues.iter().filter(has_ready) {
        while !engine.stopping.is_cancelled() {
            let (claimed, slots) = claim_from(engine, queue, None).await?;
            if claimed.is_reached {
                reached.push(&queue.saga);
            }
            if claimed.is_reached || claimed.claimed < slots {
                break;
            }
        }
    }
    // The end of one of their runs is reported; another process may have it, which is found at the poll interval.
    let open: Vec<_> = queues.iter().filter(|queue| !reached.contains(&&queue.saga)).cloned().collect();
    next_look(engine, &open).await
}

/// Claims a suspect if one is due, and returns when the next run of these queues is ready; none if one is.
async fn next_look(engine: &Arc<Engine>, queues: &[LimitedQueue]) -> sqlx::Result<Option<Duration>> {
    let poll = engine.settings.poll_interval;
    let lanes = all_lanes(queues);
    if lanes.len() == 0 {
        return Ok(Some(poll));
    }
    let due = engine.store.next_due(&lanes, engine.worker, engine.suspects.claim()).await?;
    if let Some(suspect) = due.suspect {
        let queue = queues.iter().find(|queue| queue.lanes.each().any(|lane| lane == suspect.lane()));
        if let Some(queue) = queue {
            claim_from(engine, queue, Some(&suspect)).await?;
        }
    }
    match due.seconds {
        Some(seconds) if seconds <= 0.0 => Ok(None),
        Some(seconds) => Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(poll).min(poll))),
        None => Ok(Some(poll)),
    }
}

/// What a claim has taken.
struct Claimed {
    claimed: usize,
    is_reached: bool,
}

/// Claims from one queue as many runs as there are slots, or this suspect. Returns the number of slots, too.
async fn claim_from(
    engine: &Arc<Engine>,
    queue: &LimitedQueue,
    suspect: Option<&Suspect>,
) -> sqlx::Result<(Claimed, usize)> {
    let Some(mut slots) = acquire_slots(engine, suspect.is_some()).await else {
        return Ok((Claimed { claimed: 0, is_reached: false }, 0));
    };
    // Until they are in flight: their ids are not known before.
    let claims = engine.unlisted_claims.read().await;
    let count = slots.num_permits();
    let LimitedClaim { runs, is_reached } =
        engine.store.claim_limited(engine.claimer(), queue, count, suspect).await?;
    let claimed = Claimed { claimed: runs.len(), is_reached };
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
    Ok((claimed, count))
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
