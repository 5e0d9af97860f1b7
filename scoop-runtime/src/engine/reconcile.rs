//! Lost answers of the database: finds out what has committed.
//!
//! A statement whose answer was lost may have had its effect. A decision of a step may be recorded although the worker
//! does not know ([`super::execute`] finds that out), and runs may be assigned to this worker that it does
//! not execute ([`reconcile`]).
//!
//! A claim whose answer was lost may even be carried out later, on a connection that no living process holds. So
//! [`reconcile`] first waits for the claims of this worker (`worker_wait_for_claims.sql`). Then it frees the runs that the
//! worker owns and that are not in flight (`run_free.sql`), and sweeps (`run_wake_missed.sql`). It is repeated a second
//! later, for statements that the server had not read yet, and once a minute without a cause. An unregistered worker frees
//! nothing: it owns no runs.

use std::sync::Arc;

use tokio::time::Instant;

use super::deadlines::end_pending;
use super::shared::Engine;
use super::wakeups::Delivery;
use crate::store::Reconciled;
use crate::telemetry;

/// Frees the runs that the database assigns to this worker and that are not in flight, and those whose owner is not
/// registered. The runs in flight are listed while no statement can assign a run to this worker: an earlier launch or
/// wake-up has committed, with its runs in flight since before, and a later one waits. No signal is
/// under way that may have claimed a run. Then `signals` are delivered, and runs that a removed limit has left parked return
/// to their queues. Pending runs of absent sagas that have to give up end.
pub(super) async fn reconcile(engine: &Arc<Engine>, signals: Delivery) -> sqlx::Result<()> {
    let _no_claims = engine.signal_claims.write().await;
    let in_flight = || engine.in_flight().iter().map(|(id, _)| *id).collect();
    let began = Instant::now();
    let disowned = engine.store.reconcile(engine.worker, in_flight, engine.settings.backoff).await;
    let Reconciled { freed, woken } = disowned.inspect_err(|_| engine.mark_in_doubt())?;
    telemetry::metrics::sweep_seconds().record(began.elapsed().as_secs_f64());
    engine.notify_ready(&woken);
    // A run that is woken here may await any of them.
    engine.wakeups.deliver(if woken.is_empty() { signals } else { Delivery::All });
    if freed.runs > 0 {
        telemetry::reconciled(engine.worker, freed.runs);
        // Some of the runs may have to wait.
        engine.reschedule_timer();
    }
    telemetry::unknown_too_often(&freed.stuck);
    engine.notify_ready(&engine.store.unpark_orphaned().await?);
    engine.runs.spawn(end_pending(engine.clone()));
    Ok(())
}
