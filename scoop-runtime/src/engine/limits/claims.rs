//! Claims of runs of sagas with limits that are under way, and the slots for them.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use scoop_core::refused_key;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::scheduler::PendingClaim;
use crate::engine::claim::{self, Positions};
use crate::engine::shared::Engine;
use crate::error::is_transient;
use crate::saga::registry::RunnableSaga;
use crate::store::{
    Candidate, FreedKeys, LimitedClaim, LimitedQueue, LimitedRequest, QueueCursors, ReadPage, Suspect,
    SuspectClaim,
};
use crate::telemetry;
use crate::util::panic_boundary;
use crate::util::read_permits::{ReadPermit, ReadPermits};

const BATCH_MAX: usize = 100;

/// The claims under way. They go on by themselves, since their transactions hold locks.
pub(super) struct Claims {
    tasks: JoinSet<EndedClaim>,
    pub(super) connections: ClaimConnections,
}

/// The connections that claims have at a time, those of suspects included: one of their own, and beside it those of the free permits of
/// reads for clients. A claim has such a permit until its end. So claims and reads together have one connection more than there are permits.
pub(super) struct ClaimConnections {
    own: Arc<Semaphore>,
    /// None for a store without connections.
    reads: Option<ReadPermits>,
}

#[derive(Default)]
pub(super) struct ConnectionPermit {
    _own: Option<OwnedSemaphorePermit>,
    _read: Option<ReadPermit>,
}

pub(super) struct EndedClaim {
    pub(super) saga: String,
    pub(super) topology: i64,
    pub(super) positions: Positions,
    pub(super) pending: PendingClaim,
    /// None if the database has refused it.
    pub(super) claimed: sqlx::Result<Option<Claimed>>,
}

/// The result of a claim, apart from the runs, which are started.
#[derive(Default)]
pub(super) struct Claimed {
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
    pub(super) page: ReadPage,
    /// The positions from which the next claim looks; none if this one has not looked.
    pub(super) cursors: Option<QueueCursors>,
}

impl Claims {
    pub(super) fn new(reads: Option<ReadPermits>) -> Self {
        Self { tasks: JoinSet::new(), connections: ClaimConnections::new(reads) }
    }

    pub(super) fn begin(
        &mut self,
        engine: &Arc<Engine>,
        queue: LimitedQueue,
        pending: PendingClaim,
        positions: Positions,
        (slots, permit): (OwnedSemaphorePermit, ConnectionPermit),
    ) {
        let engine = engine.clone();
        self.tasks.spawn(async move {
            let claimed = claim_from(&engine, &queue, None, slots, &pending.freed, &positions.cursors).await;
            drop(permit);
            let claimed = unless_refused(&engine, &queue, claimed);
            let LimitedQueue { of, queues: claim_queues } = queue;
            EndedClaim { saga: of.saga, topology: claim_queues.topology, positions, pending, claimed }
        });
    }

    /// The next one that ends; none if none is under way. Cancel-safe.
    pub(super) async fn next_ended(&mut self) -> Option<EndedClaim> {
        match self.tasks.join_next().await? {
            Ok(ended) => Some(ended),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl ClaimConnections {
    fn new(reads: Option<ReadPermits>) -> Self {
        Self { own: Arc::new(Semaphore::new(1)), reads }
    }

    /// A connection for a claim that begins now; none if other tasks need it.
    pub(super) fn try_acquire(&self) -> Option<ConnectionPermit> {
        if let Ok(own) = self.own.clone().try_acquire_owned() {
            return Some(ConnectionPermit { _own: Some(own), _read: None });
        }
        match &self.reads {
            Some(reads) => reads.try_acquire().map(|it| ConnectionPermit { _own: None, _read: Some(it) }),
            None => Some(ConnectionPermit::default()),
        }
    }

    /// The same, if need be after the end of the claim that has the own connection.
    pub(super) async fn acquire(&self) -> ConnectionPermit {
        match self.try_acquire() {
            Some(permit) => permit,
            // The semaphore is never closed.
            None => ConnectionPermit { _own: self.own.clone().acquire_owned().await.ok(), _read: None },
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
    let claims = engine.signal_claims.read().await;
    let sagas = engine.sagas();
    let key_of = |run: &Candidate| {
        let saga = sagas.find(&run.topic, &run.handler);
        let saga = saga.filter(|saga| saga.handler.limits().by == queue.of.key_from.as_deref());
        saga.map(|saga| key(saga, run).unwrap_or_default())
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
    let LimitedClaim { runs, is_full, is_locked, is_reached, opens_in, page, cursors: advanced } =
        engine.store.claim_limited(request).await?;
    let opens_in = opens_in.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let (has_begun, has_unclaimed) = (runs.iter().any(Result::is_ok), runs.iter().any(Result::is_err));
    let claimed = Claimed {
        is_full,
        is_locked,
        is_reached,
        opens_in,
        has_begun,
        has_unclaimed,
        page,
        cursors: advanced,
    };
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
    let key = panic_boundary::run(&run.handler, || {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::settings::WORKING_CONNECTIONS;
    use crate::util::retries::RETRY_FOR;

    #[tokio::test(start_paused = true)]
    async fn claims_and_reads_leave_a_connection_to_other_tasks() {
        let reads = ReadPermits::at_half(WORKING_CONNECTIONS);
        let connections = ClaimConnections::new(Some(reads.clone()));
        let (mut claims, mut pending) = (vec![], vec![]);
        claims.extend(std::iter::from_fn(|| connections.try_acquire()));
        assert!(claims.len() > 1, "a second claim is under way");
        pending.extend(reads.permit(RETRY_FOR).now_or_never());
        assert_eq!(claims.len() + pending.len(), WORKING_CONNECTIONS as usize - 1);
        claims.clear();
        pending.extend(reads.permit(RETRY_FOR).now_or_never());
        claims.extend(std::iter::from_fn(|| connections.try_acquire()));
        assert_eq!((claims.len(), pending.len()), (1, WORKING_CONNECTIONS as usize - 2), "beside a read");
    }

    #[tokio::test(start_paused = true)]
    async fn read_that_waits_comes_before_the_next_second_claim() {
        let reads = ReadPermits::at_half(WORKING_CONNECTIONS);
        let connections = ClaimConnections::new(Some(reads.clone()));
        let (first, second) = (connections.try_acquire(), connections.try_acquire());
        assert!(first.is_some() && second.is_some());
        let mut read = Box::pin(reads.permit(RETRY_FOR));
        assert!((&mut read).now_or_never().is_none());
        drop(second);
        assert!(connections.try_acquire().is_none(), "the read has the turn");
        let pending = read.now_or_never().expect("it is its turn").unwrap();
        drop(first);
        let next = connections.try_acquire();
        assert!(next.is_some() && connections.try_acquire().is_none(), "the read is under way");
        drop(pending);
        assert!(connections.try_acquire().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn claim_of_a_suspect_waits_for_the_end_of_a_claim_or_begins_beside_it() {
        let reads = ReadPermits::at_half(WORKING_CONNECTIONS);
        let connections = ClaimConnections::new(Some(reads.clone()));
        let first = connections.try_acquire();
        let suspect = connections.acquire().now_or_never();
        assert!(first.is_some() && suspect.is_some());
        assert!(connections.try_acquire().is_none(), "two are under way");
        drop(suspect);
        let _permit = reads.permit(RETRY_FOR).now_or_never().expect("it is its turn").unwrap();
        let mut suspect = Box::pin(connections.acquire());
        assert!((&mut suspect).now_or_never().is_none(), "a claim and a read are under way");
        drop(first);
        assert!(suspect.now_or_never().is_some());
    }

    #[test]
    fn claims_in_a_store_without_connections_wait_for_none() {
        let connections = ClaimConnections::new(None);
        let permits = [(); 3].map(|()| connections.try_acquire());
        assert!(permits.iter().all(Option::is_some));
    }
}
