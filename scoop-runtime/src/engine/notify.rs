//! Notifies other processes.
//!
//! Notifications only reduce latency; polling finds what they miss.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::shared::Engine;
use crate::telemetry;

/// How often other processes are notified at most: each notification takes a lock that all
/// databases of the server share.
const NOTIFY_PAUSE: Duration = Duration::from_millis(5);

/// Notifies the other processes: batched, and outside of all other transactions.
pub(super) async fn serve(engine: Arc<Engine>, drained: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = engine.wakeups.others.notified() => {}
            () = drained.cancelled() => return,
        }
        if let Err(error) = engine.store.notify(engine.worker).await {
            telemetry::operation_abandoned(engine.worker, "notification", &error);
        }
        tokio::time::sleep(NOTIFY_PAUSE).await;
    }
}
