//! Keeps the knowledge of the definitions of this program and of other workers up to date.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Known;
use crate::engine::shared::Engine;
use crate::model::subscribed_saga::Renamed;
use crate::saga::registry::{RunnableSaga, Sagas};
use crate::store::Topology;
use crate::telemetry;
use crate::util::sync::lock;

/// Reads the living workers and their definitions, and the names that newer programs have given the sagas of this one.
pub(in crate::engine) async fn poll(engine: &Engine) -> sqlx::Result<()> {
    let _changing = engine.topology.changing.lock().await;
    add_names(engine).await?;
    register_and_refresh(engine).await
}

/// Makes a type of replies part of the definition of a saga of this program.
pub(in crate::engine) async fn add_reply_type(
    engine: &Engine,
    saga: &RunnableSaga,
    reply_type: &str,
) -> sqlx::Result<()> {
    let _changing = engine.topology.changing.lock().await;
    let known = engine.topology.known();
    let mut reply_types = known.reply_types.clone();
    if reply_types.entry(saga.definition.saga.to_string()).or_default().insert(reply_type.to_owned()) {
        let known = Known::publish(&engine.store, known.sagas.clone(), reply_types).await?;
        *lock(&engine.topology.known) = Arc::new(known);
    }
    // A type that was added before may not have reached the database.
    register_and_refresh(engine).await?;
    engine.wake_tasks();
    Ok(())
}

/// Has this worker run its sagas under the names that newer programs have given them.
async fn add_names(engine: &Engine) -> sqlx::Result<()> {
    let renamed = engine.store.renamed_sagas(&engine.subscriptions).await?;
    let known = engine.topology.known();
    let mut sagas = Sagas::clone(&known.sagas);
    let added = sagas.add_names(renamed);
    if added.is_empty() {
        return Ok(());
    }
    let known = Known::publish(&engine.store, Arc::new(sagas), known.reply_types.clone()).await?;
    *lock(&engine.topology.known) = Arc::new(known);
    for Renamed { name, own_name, .. } in added {
        telemetry::saga_renamed(engine.worker, &own_name, &name);
    }
    Ok(())
}

/// Lists what has changed of the sagas since this worker was registered, and derives which definitions are current.
async fn register_and_refresh(engine: &Engine) -> sqlx::Result<()> {
    let known = engine.topology.known();
    let read = || engine.store.read_topology(known.sagas.keys().1);
    let mut topology = read().await?;
    let own = topology.living.iter().find(|living| living.id == engine.worker);
    let changed = own.map_or_else(Vec::new, |own| known.unlisted(own));
    if !changed.is_empty() {
        let registered = engine.topology.registered(&known, engine.worker, &engine.settings.program);
        engine.store.enlist(registered, &changed).await?;
        topology = read().await?;
    }
    let paused = engine.topology.view().new_paused.clone();
    engine.topology.derive_view(engine.worker, &topology);
    engine.wakeups.has_limits.store(engine.topology.is_any_limited(), Ordering::Relaxed);
    engine.wakeups.wake_limited();
    if paused != engine.topology.view().new_paused {
        engine.wakeups.schedules.notify_one();
    }
    if !engine.topology.view().contested.is_empty() {
        // With outdated knowledge, this worker did not notify other workers of runs that only they may claim.
        engine.wakeups.others.notify_one();
    }
    acknowledge(engine, &topology).await
}

/// Records that this worker follows the pauses that there are. From then on no claim by former knowledge is under way, and
/// runs in execution begin no further step of a paused handler. Without a pause nothing is recorded.
async fn acknowledge(engine: &Engine, topology: &Topology) -> sqlx::Result<()> {
    let own = topology.living.iter().find(|living| living.id == engine.worker);
    let own = own.filter(|own| !topology.paused.is_empty() && own.acknowledged != own.topology);
    // Until it succeeds, the timer has this done again.
    engine.topology.owes_acknowledgement.store(own.is_some(), Ordering::Relaxed);
    if let Some(own) = own {
        engine.store.acknowledge(engine.worker, own.topology).await?;
        engine.topology.owes_acknowledgement.store(false, Ordering::Relaxed);
    }
    Ok(())
}
