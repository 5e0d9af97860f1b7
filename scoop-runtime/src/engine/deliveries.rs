//! Delivers signals to the runs that await them.
//!
//! A delivery follows each commit of a signal and each commit of a run that awaits one, so that of two at the same time
//! the later one sees both. The periodic sweep covers a process that dies in between, and signals from transactions of
//! users.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use scoop_core::SignalKey;
use tokio_util::sync::CancellationToken;

use super::shared::Engine;
use super::signals::Deliveries;
use crate::error::is_transient;
use crate::store::Deliver;
use crate::telemetry;

const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// The number of requests that one statement answers.
const BATCH_MAX: usize = 1_000;

/// How long after a signal in a transaction of a user the commit of that is looked for: after each of these pauses.
const PAUSES_MILLIS: [u64; 12] = [2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// Delivers signals. Requests that arrive during a statement are answered together by the next one.
pub(super) async fn serve(engine: Arc<Engine>, mut queue: Deliveries, drained: CancellationToken) {
    let mut batch = vec![];
    loop {
        tokio::select! {
            biased;
            _ = queue.recv_many(&mut batch, BATCH_MAX) => {}
            () = drained.cancelled() => return,
        }
        let (mut keys, mut kept) = (BTreeSet::<SignalKey>::new(), false);
        for deliver in batch.drain(..) {
            match deliver {
                Deliver::To(to) => keys.extend(to),
                Deliver::Kept => kept = true,
            }
        }
        let deliver = if kept { Deliver::Kept } else { Deliver::To(keys.into_iter().collect()) };
        loop {
            match engine.store.deliver_signals(&deliver).await {
                Ok(handlers) => {
                    engine.notify_ready(&handlers);
                    break;
                }
                Err(error) if engine.stopping.is_cancelled() => {
                    telemetry::operation_abandoned(engine.worker, "delivery of signals", &error);
                    break;
                }
                Err(error) => {
                    telemetry::operation_failed(engine.worker, "delivery of signals", &error);
                    // One damaged row must not hold up other signals for ever: the sweep tries again.
                    if !is_transient(&error) {
                        break;
                    }
                }
            }
            tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
        }
    }
}

impl Engine {
    /// Looks for the commit of a signal that a transaction of a user sends, for a while.
    pub(crate) fn deliver_after_foreign_commit(self: &Arc<Self>, to: SignalKey) {
        let engine = self.clone();
        self.runs.spawn(async move {
            for pause in PAUSES_MILLIS {
                tokio::select! {
                    biased;
                    () = engine.stopping.cancelled() => return,
                    () = tokio::time::sleep(Duration::from_millis(pause)) => engine.signals.deliver(to.clone()),
                }
            }
        });
    }
}
