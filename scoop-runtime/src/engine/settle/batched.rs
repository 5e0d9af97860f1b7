//! Persists the conclusions of runs whose step opened no transaction: many in one commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::queue::{OutcomeQueue, Pending, SettleError};
use crate::engine::shared::Engine;
use crate::error::is_transient;
use crate::store::Unhandled;
use crate::store::{SettlePath, SettleResult, Settlement, parts};
use crate::telemetry;

/// The number of settler tasks: while one commits, the other collects.
pub(in crate::engine) const SETTLERS: usize = 2;

/// The number of outcomes in one commit.
const BATCH_MAX: usize = 200;

/// The result of each settlement that applied, by run and epoch.
type Answers = BTreeMap<(Uuid, i64), SettleResult>;

/// Writes the outcomes in the queue, without waiting for more, until all senders are gone.
pub(in crate::engine) async fn serve(engine: Arc<Engine>, queue: OutcomeQueue, drained: CancellationToken) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    loop {
        let mut outcomes = queue.lock().await;
        tokio::select! {
            biased;
            _ = outcomes.recv_many(&mut batch, BATCH_MAX) => {}
            () = drained.cancelled() => return,
        }
        drop(outcomes);
        // One outcome that needs a long statement must not force it on the others.
        let mut by_path: [Vec<Pending>; 6] = Default::default();
        for pending in batch.drain(..) {
            let path = match pending.settlement.path() {
                _ if pending.settlement.is_bulky() => 5,
                _ if pending.settlement.requires_handlers() || pending.settlement.is_found_by() => 4,
                SettlePath::Advance => 0,
                SettlePath::LaunchChildren => 1,
                SettlePath::RequestRollback => 2,
                SettlePath::General => 3,
            };
            by_path[path].push(pending);
        }
        for mut batch in by_path {
            // In the order in which a cancellation locks the runs of a hierarchy. The two can still wait for each
            // other, since runs of a batch that continue are locked before those that end; then the server aborts one
            // of them.
            batch.sort_unstable_by_key(|pending| pending.settlement.lock_order());
            let lengths: Vec<_> =
                parts(&batch, |pending| pending.settlement.bytes()).map(<[_]>::len).collect();
            for length in lengths {
                settle(&engine, batch.drain(..length).collect()).await;
            }
        }
    }
}

/// Writes a batch. If the database refuses it, each outcome is written by itself, so that only the one at fault fails.
async fn settle(engine: &Engine, batch: Vec<Pending>) {
    let (settlements, answers): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|pending| (pending.settlement, pending.answer)).unzip();
    match write(engine, &settlements).await {
        Ok(mut settled) => {
            for (settlement, answer) in settlements.iter().zip(answers) {
                let settled = settled.remove(&settlement.id());
                // The receiver may be gone; then no component needs the answer.
                let _ = answer.send(settled.ok_or(SettleError::TakenOver));
            }
        }
        Err(error) if is_transient(&error) && engine.stopping.is_cancelled() => {
            telemetry::operation_abandoned(engine.worker, "settlement", &error);
            for answer in answers {
                let _ = answer.send(Err(SettleError::Stopped));
            }
        }
        Err(error) if settlements.len() == 1 => {
            for answer in answers {
                let _ = answer.send(Err(match Unhandled::find_in(&error) {
                    Some(unhandled) => SettleError::Unhandled(unhandled.clone()),
                    None => SettleError::Refused(error.to_string()),
                }));
            }
        }
        Err(_) => {
            for (settlement, answer) in settlements.into_iter().zip(answers) {
                Box::pin(settle(engine, vec![Pending { settlement, answer }])).await;
            }
        }
    }
}

/// Retries until the database answers, or the engine stops. A settlement that was executed without an answer is not
/// executed again, since the epoch of its run has been raised: it then counts as taken over, and the run is reconciled.
async fn write(engine: &Engine, settlements: &[Settlement]) -> sqlx::Result<Answers> {
    let mut attempts = 0;
    loop {
        let error = match engine.store.settle(&engine.identifier, settlements).await {
            Ok(settled) => return Ok(settled),
            Err(error) => error,
        };
        attempts += 1;
        // An error that the server repeats may be the fault of one of many.
        let split = error.as_database_error().is_some() && attempts >= 3 && settlements.len() > 1;
        if !is_transient(&error) || split || engine.stopping.is_cancelled() {
            return Err(error);
        }
        telemetry::operation_failed(engine.worker, "settlement", &error);
        tokio::time::sleep(engine.settings.backoff.pause(attempts)).await;
    }
}
