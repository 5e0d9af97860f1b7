//! What a program records of itself: at its start, and again if the database has lost it, as when a test suite empties the
//! tables while the program runs.

use super::shared::Engine;
use super::topology::refresh;
use super::{launched_topics, schedule};
use crate::model::subscribed_saga::Renamed;
use crate::telemetry;

/// Registers the schedules, the limits and the declared launches of this program, and reads the topology.
pub(super) async fn publish(engine: &Engine) -> sqlx::Result<()> {
    schedule::publish(engine).await?;
    publish_limits(engine).await?;
    launched_topics::publish(engine).await?;
    refresh::poll(engine).await
}

/// Records the limits of this program, for the names that newer programs have given its sagas, too.
async fn publish_limits(engine: &Engine) -> sqlx::Result<()> {
    let mut limits = engine.limits.clone();
    for Renamed { name, own_name, .. } in engine.store.renamed_sagas(&engine.subscriptions).await? {
        let renamed = limits.iter_mut().filter(|limit| limit.names().any(|known| *known == own_name));
        renamed.for_each(|limit| limit.was.push(name.clone()));
    }
    for change in engine.store.publish_limits(&limits).await? {
        if change.left_out > 0 {
            telemetry::limit_names_left_out(engine.worker, &change.saga, change.left_out);
        }
    }
    Ok(())
}

/// Records again what the database has lost of this program. Subscriptions that an operator has ended have their rows, and
/// stay ended.
pub(super) async fn restore(engine: &Engine) -> sqlx::Result<()> {
    let registration = engine.store.registration(engine.worker, &engine.subscriptions).await?;
    if !registration.missing.is_empty() {
        let missing = registration.missing.iter().filter_map(|at| engine.subscriptions.get(*at));
        let missing: Vec<_> = missing.cloned().collect();
        missing.iter().for_each(|it| telemetry::saga_unlisted(engine.worker, &it.handler));
        // Its definitions are gone, too, and their numbers are free.
        engine.topology.publish_again(&engine.store).await?;
        engine.store.register(&missing, engine.settings.retention).await?;
        publish(engine).await?;
    }
    if registration.lacks_worker {
        engine.wakeups.unlisted.notify_one();
    }
    Ok(())
}
