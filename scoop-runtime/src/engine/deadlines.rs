//! Has runs give up that no claim reaches: waiting ones at their deadlines, and pending ones whose saga no living program
//! has, or whose handler is retired.
//!
//! The timer ([`super::timer`]) calls [`expire_waiting`] when a deadline is due by the clock of the server.
//! `run_mark_overdue.sql` marks the runs, and the parent check wakes them, as after the end of their last child. The failure
//! of such a run follows from its deadlines ([`scoop_core::Deadline`]). Running steps have [`super::step_stop_signals`]
//! instead. A pending run needs no code of its saga to end, so each reconciliation looks for those that no program will
//! claim ([`end_pending`]).
//!
//! A claim says before a step whether its run has to give up, and a settlement rejects the result of a step if it has to by
//! then. A waiting run that gives up deletes its pending children and waits for the others. A cancellation marks all runs
//! below its scope, and is repeated until it sees none without a mark, since a concurrent settlement may have launched
//! children. Runs of a rollback are exempt (`rollback_since`): only the rollback deadline and the absolute deadline count
//! for them.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::execute::drive_as;
use super::execution::InFlightGuard;
use super::shared::Engine;
use super::slots::{Slot, SlotLease};
use crate::engine::handover::hand_back;
use crate::saga::registry::RunnableSaga;
use crate::store::{ClaimQueues, OverdueRun, Release};
use crate::telemetry;

/// The number of runs that one statement checks.
const BATCH_MAX: i64 = 1_000;

const PENDING_MAX: i64 = 100;

/// Marks the waiting runs that have missed a deadline, and has them checked.
pub(super) async fn expire_waiting(engine: &Engine) -> sqlx::Result<()> {
    for run in engine.store.expire_waiting(BATCH_MAX).await? {
        engine.wakeups.child_ended(run, None);
    }
    Ok(())
}

/// Ends the pending runs that no program will claim: those of handlers that were retired together with them; and one after the
/// other those that have to give up and whose saga no living program has.
pub(super) async fn end_pending(engine: Arc<Engine>) {
    match engine.store.delete_dropped().await {
        Ok(parents) => parents.into_iter().for_each(|parent| engine.wakeups.child_ended(parent, None)),
        Err(error) => telemetry::operation_failed(engine.worker, "drop of retired runs", &error),
    }
    let mut ended = true;
    while std::mem::take(&mut ended) {
        let overdue = match engine.store.overdue_runs(PENDING_MAX).await {
            Ok(overdue) => overdue,
            Err(error) => return telemetry::operation_failed(engine.worker, "look for overdue runs", &error),
        };
        for run in overdue {
            if engine.stopping.is_cancelled() {
                return;
            }
            match end_one(&engine, run).await {
                Ok(is_ended) => ended |= is_ended,
                Err(error) => {
                    telemetry::operation_failed(engine.worker, "claim", &error);
                    engine.mark_in_doubt();
                    return;
                }
            }
        }
    }
}

/// Whether this has claimed the run. It records the same events as a program that has the saga.
async fn end_one(engine: &Arc<Engine>, OverdueRun { run, steps }: OverdueRun) -> sqlx::Result<bool> {
    let saga = RunnableSaga::absent(&run.topic, &run.handler, steps);
    let mut queue = ClaimQueues { topology: engine.topology.queues().topology, ..ClaimQueues::default() };
    queue.push(&run.topic, &saga.definition, 0, 0, false);
    // No reconciliation frees the run before it is in flight.
    let read_guard = engine.signal_claims.read().await;
    let claimed = match engine.store.claim_suspect(engine.claimer(), &queue, &run).await? {
        Some(Ok(claimed)) => claimed,
        Some(Err(unclaimed)) => {
            hand_back(engine, unclaimed).await;
            return Ok(false);
        }
        None => return Ok(false),
    };
    let flight = InFlightGuard::begin(engine.clone(), claimed.key);
    drop(read_guard);
    if !claimed.overdue {
        engine.store.release(&[Release::at_once(claimed.key)]).await?;
        return Ok(false);
    }
    // It takes no slot from runs with code.
    let slot = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("the semaphore is new");
    let lease = SlotLease::new(engine.running_counts.take(&claimed.handler), Slot::Reserved(slot));
    drive_as(flight, claimed, lease, Arc::new(saga)).await;
    Ok(true)
}
