//! Records who launches what, for the graph of the topology: each saga, step and topic once. A launch that is not recorded since
//! the process dies is recorded by the next process in which it occurs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use crate::saga::registry::RunnableSaga;
use crate::telemetry;
use crate::util::sync::lock;

impl Engine {
    /// Notes a launch on this topic by the step at this position. The first one is recorded later.
    pub(super) fn note_launch(&self, saga: &RunnableSaga, step: usize, topic: &str) {
        if let Some(seen) = saga.note_launch(step, topic) {
            self.launches.note(seen);
        }
    }
}

/// Records which launches the steps of this program declare, and reads which others are recorded.
pub(super) async fn publish(engine: &Engine) -> sqlx::Result<()> {
    let sagas = engine.sagas();
    // Not under former names.
    let own: BTreeSet<_> = engine.subscriptions.iter().map(|it| &*it.handler).collect();
    let subscribed = sagas.each().filter(|saga| own.contains(&*saga.definition.saga));
    let declared: BTreeSet<_> = subscribed.flat_map(RunnableSaga::declared_launches).collect();
    engine.store.declare_launches(sagas.keys().1, &declared.into_iter().collect::<Vec<_>>()).await?;
    let recorded = engine.store.launches(sagas.keys().1).await?;
    let mut known: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for launch in &recorded {
        known.entry(&launch.saga).or_default().push((&launch.step, &launch.topic));
    }
    for saga in sagas.each() {
        saga.know_launches(known.get(&*saga.definition.saga).into_iter().flatten().copied());
    }
    Ok(())
}

/// Records what is noted, until the engine is drained.
pub(super) async fn serve(engine: Arc<Engine>, drained: CancellationToken) {
    loop {
        let is_last = tokio::select! {
            biased;
            () = drained.cancelled() => true,
            () = engine.launches.noted.notified() => false,
        };
        let mut seen = std::mem::take(&mut *lock(&engine.launches.unrecorded));
        if !seen.is_empty()
            && let Err(error) = engine.store.record_launches(&seen).await
        {
            telemetry::operation_failed(engine.worker, "record of launches", &error);
            lock(&engine.launches.unrecorded).append(&mut seen);
            tokio::select! {
                biased;
                () = drained.cancelled() => {}
                () = tokio::time::sleep(PAUSE_AFTER_FAILURE) => {}
            }
            engine.launches.noted.notify_one();
        }
        if is_last {
            return;
        }
    }
}
