//! Claims of runs of sagas with limits that are under way, and the slots for them.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use scoop_core::refused_key;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use super::looks::Turn;
use crate::engine::claim::{self, Positions};
use crate::engine::shared::Engine;
use crate::engine::user_code::boundary;
use crate::error::is_transient;
use crate::saga::registry::RunnableSaga;
use crate::store::{
    Candidate, FreedKeys, LimitedClaim, LimitedQueue, LimitedRequest, QueueCursors, Suspect, SuspectClaim,
};
use crate::telemetry;

/// The number of runs that one claim takes.
const BATCH_MAX: usize = 100;

/// The claims under way. They go on by themselves, since their transactions hold locks.
pub(super) struct Claims(JoinSet<EndedClaim>);

/// A claim that has ended.
pub(super) struct EndedClaim {
    pub(super) saga: String,
    /// The topology of its queues.
    pub(super) topology: i64,
    /// The positions from which it began.
    pub(super) positions: Positions,
    pub(super) turn: Turn,
    /// None if the database has refused it.
    pub(super) claimed: sqlx::Result<Option<Claimed>>,
}

/// The result of a claim, apart from the runs, which are started.
#[derive(Default)]
pub(super) struct Claimed {
    /// Whether there may be more to claim.
    pub(super) is_full: bool,
    /// Whether another session has locked the limit.
    pub(super) is_locked: bool,
    pub(super) is_reached: bool,
    /// In how long a rate admits the next run.
    pub(super) opens_in: Option<Duration>,
    /// Whether a run was started.
    pub(super) has_begun: bool,
    /// Whether a claimed run could not be started.
    pub(super) has_unclaimed: bool,
    /// The key from which the next page of keys begins, if there is one.
    pub(super) next_page: Option<String>,
    /// How far the queues have been worked off by this claim.
    pub(super) taken: QueueCursors,
}

impl Claims {
    pub(super) fn new() -> Self {
        Self(JoinSet::new())
    }

    /// Begins to claim runs of a saga for these slots.
    pub(super) fn begin(
        &mut self,
        engine: &Arc<Engine>,
        queue: LimitedQueue,
        turn: Turn,
        positions: Positions,
        slots: OwnedSemaphorePermit,
    ) {
        let engine = engine.clone();
        self.0.spawn(async move {
            let claimed = claim_from(&engine, &queue, None, slots, &turn.freed, &positions.cursors).await;
            let claimed = unless_refused(&engine, &queue, claimed);
            let LimitedQueue { of, lanes } = queue;
            EndedClaim { saga: of.saga, topology: lanes.topology, positions, turn, claimed }
        });
    }

    /// The next one that ends; none if none is under way. Cancel-safe.
    pub(super) async fn next_ended(&mut self) -> Option<EndedClaim> {
        match self.0.join_next().await? {
            Ok(ended) => Some(ended),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// Claims from one queue as many runs as there are slots, or this suspect. Looks only at runs from these positions on.
pub(super) async fn claim_from(
    engine: &Arc<Engine>,
    queue: &LimitedQueue,
    suspect: Option<&Suspect>,
    mut slots: OwnedSemaphorePermit,
    freed: &FreedKeys,
    cursors: &QueueCursors,
) -> sqlx::Result<Claimed> {
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
        cursors,
        key_of: &key_of,
    };
    let LimitedClaim { runs, is_full, is_locked, is_reached, opens_in, next_page, taken } =
        engine.store.claim_limited(request).await?;
    let opens_in = opens_in.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let (has_begun, has_unclaimed) = (runs.iter().any(Result::is_ok), runs.iter().any(Result::is_err));
    let claimed =
        Claimed { is_full, is_locked, is_reached, opens_in, has_begun, has_unclaimed, next_page, taken };
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
pub(super) async fn acquire_slots(engine: &Engine) -> Option<OwnedSemaphorePermit> {
    let first = acquire_slot(engine).await?;
    Some(with_more_slots(engine, first))
}

/// The same if there is a slot now.
pub(super) fn try_acquire_slots(engine: &Engine) -> Option<OwnedSemaphorePermit> {
    let first = engine.slots.clone().try_acquire_owned().ok()?;
    Some(with_more_slots(engine, first))
}

/// One slot. None when the engine stops.
pub(super) async fn acquire_slot(engine: &Engine) -> Option<OwnedSemaphorePermit> {
    tokio::select! {
        biased;
        () = engine.stopping.cancelled() => None,
        slot = engine.slots.clone().acquire_owned() => slot.ok(),
    }
}

fn with_more_slots(engine: &Engine, mut slots: OwnedSemaphorePermit) -> OwnedSemaphorePermit {
    let more = (engine.slots.available_permits() / 2).min(BATCH_MAX - 1);
    let more = u32::try_from(more).unwrap_or(0);
    if let Ok(more) = engine.slots.clone().try_acquire_many_owned(more) {
        slots.merge(more);
    }
    slots
}

/// The result of a claim of runs of one saga; none if the database has refused it, which is reported.
pub(super) fn unless_refused<T>(
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
