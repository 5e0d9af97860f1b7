//! Ends the wait of messages whose set was not complete in time.
//!
//! Only programs with such joins do that. The set of a message is launched with what it has, and its saga fails.

use std::sync::Arc;
use std::time::Duration;

use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use crate::telemetry;

pub(super) async fn serve(engine: Arc<Engine>) {
    let timed: Vec<_> =
        engine.joins.iter().filter(|spec| spec.within.is_some()).map(|spec| &**spec).collect();
    while !timed.is_empty() {
        let pause = match engine.store.expire_join(&timed).await {
            Ok(expired) => {
                engine.notify_joined(&expired.launched);
                let wait = expired.seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                wait.unwrap_or(engine.settings.poll_interval).min(engine.settings.poll_interval)
            }
            Err(error) => {
                telemetry::operation_failed(engine.worker, "join lookup", &error);
                PAUSE_AFTER_FAILURE
            }
        };
        tokio::select! {
            biased;
            () = engine.stopping.cancelled() => return,
            () = engine.wakeups.joins.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
    engine.stopping.cancelled().await;
}
