//! Starts the engine and its tasks, and ends them in order: the shutdown.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{RwLock, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::health_state::HealthState;
use super::new_launches::NewLaunches;
use super::settle::batched;
use super::settle::queue::{OutcomeQueue, Settler};
use super::shared::Engine;
use super::slots::{ReservedSlots, RunningCounts};
use super::step_stop_signals::StopSignals;
use super::suspects::Suspects;
use super::topology::TopologyCache;
use super::user_code::running::Running;
use super::wakeups::{Deliveries, Delivery, ParentChecks, Wakeups};
use super::{
    claim, decisions, gauges, join_expiry, launched_topics, limits, liveness, notify, parents, reconcile,
    registration, retention, schedule, signal_delivery, timer,
};
use crate::completion::Completions;
use crate::engine::decisions::queue::DecisionQueue;
use crate::model::program::IDENTIFIER_PREFIX;
use crate::saga::registry::Registry;
use crate::settings::Settings;
use crate::store::{StepTransactions, Store};
use crate::telemetry;
use crate::unhandled::UnhandledWarnings;
use crate::util::ids;
use crate::util::panic_boundary::record_locations;
use crate::util::sync::Mutex;

/// Starts all tasks. Returns when this worker is registered.
pub(crate) async fn start(
    store: Store,
    step_transactions: Option<StepTransactions>,
    registry: Registry,
    settings: Settings,
) -> sqlx::Result<Arc<Engine>> {
    record_locations();
    let worker = ids::now_v7();
    let Registry { sagas, subscriptions, schedules, joins, limits, .. } = registry;
    let topology = TopologyCache::publish(&store, sagas).await?;
    let (settler, settlements) = Settler::new();
    let (decisions, undecided, of_tables) = DecisionQueue::new();
    let (wakeups, parents, deliveries) = Wakeups::new();
    let (reserved, slots) = ReservedSlots::new(settings.concurrency);
    let engine = Arc::new(Engine {
        slots: Arc::new(Semaphore::new(slots)),
        reserved,
        running_counts: RunningCounts::default(),
        suspects: Suspects::default(),
        step_transactions,
        unhandled: UnhandledWarnings::new(store.clone()),
        store,
        subscriptions,
        schedules,
        joins,
        limits,
        topology,
        settings,
        worker,
        identifier: format!("{IDENTIFIER_PREFIX}{worker}"),
        in_flight: Mutex::default(),
        signal_claims: RwLock::default(),
        queue_cursors: Mutex::default(),
        in_doubt: AtomicBool::new(false),
        reconcile_due: AtomicBool::new(false),
        settler,
        launches: NewLaunches::default(),
        decisions,
        wakeups,
        stop_signals: StopSignals::default(),
        completions: Completions::default(),
        stopping: CancellationToken::new(),
        stopped: CancellationToken::new(),
        gone: CancellationToken::new(),
        runs: TaskTracker::new(),
        running: Running::default(),
        health_state: HealthState::default(),
        unread: Mutex::default(),
    });
    // Before this worker is registered: workers with former names of these sagas then look for the new ones.
    engine.store.register(&engine.subscriptions, engine.settings.retention).await?;
    let session = liveness::WorkerSession::open(&engine).await?;
    engine.note_session(true);
    if let Err(error) = publish(&engine).await {
        session.close().await;
        return Err(error);
    }
    telemetry::metrics::describe();
    telemetry::started(worker, engine.subscriptions.len(), engine.settings.concurrency);
    // Also a task that its runtime drops before the first poll cancels it.
    let gone = engine.gone.clone().drop_guard();
    let queues = Queues { settlements, undecided, of_tables, parents, deliveries };
    tokio::spawn(serve(engine.clone(), session, queues, gone));
    Ok(engine)
}

/// Registers the schedules and limits of this program, and warns of runs that wait for its sagas.
async fn publish(engine: &Arc<Engine>) -> sqlx::Result<()> {
    registration::publish(engine).await?;
    for (topic, saga) in engine.store.abandoned_sagas().await? {
        telemetry::saga_missing(engine.worker, &saga, &topic);
    }
    reconcile::reconcile(engine, Delivery::All).await
}

/// The receivers of the queues between tasks.
struct Queues {
    settlements: OutcomeQueue,
    undecided: decisions::queue::Inbox,
    of_tables: decisions::queue::Inbox,
    parents: ParentChecks,
    deliveries: Deliveries,
}

/// Runs until it is stopped, then shuts down: no new claims; running steps end and are settled; their runs are
/// handed back, and the other workers are notified.
async fn serve(engine: Arc<Engine>, session: liveness::WorkerSession, queues: Queues, _gone: DropGuard) {
    let Queues { settlements, undecided, of_tables, parents, deliveries } = queues;
    let drained = CancellationToken::new();
    // After a panic below, the session ends, so that other workers take the runs over.
    let _drained = drained.clone().drop_guard();
    let helpers = TaskTracker::new();
    let spawn =
        |task: BoxFuture<'static, ()>| helpers.spawn(helped_by(engine.clone(), task, drained.clone()));
    spawn(liveness::serve_session(engine.clone(), session, drained.clone()).boxed());
    spawn(liveness::reap(engine.clone()).boxed());
    spawn(schedule::serve(engine.clone()).boxed());
    spawn(join_expiry::serve(engine.clone()).boxed());
    spawn(limits::serve(engine.clone()).boxed());
    spawn(retention::serve(engine.clone()).boxed());
    if cfg!(feature = "metrics") {
        spawn(gauges::serve(engine.clone()).boxed());
    }
    spawn(parents::serve(engine.clone(), parents, drained.clone()).boxed());
    spawn(signal_delivery::serve(engine.clone(), deliveries, drained.clone()).boxed());
    spawn(launched_topics::serve(engine.clone(), drained.clone()).boxed());
    spawn(decisions::serve(engine.clone(), undecided, drained.clone()).boxed());
    spawn(decisions::sql_entity::serve(engine.clone(), of_tables, drained.clone()).boxed());
    spawn(timer::serve_timer(engine.clone(), drained.clone()).boxed());
    spawn(timer::serve_stop_signals(engine.clone(), drained.clone()).boxed());
    spawn(notify::serve(engine.clone(), drained.clone()).boxed());
    for _ in 0..batched::SETTLERS {
        spawn(batched::serve(engine.clone(), settlements.clone(), drained.clone()).boxed());
    }
    claim::serve(engine.clone()).await;

    engine.runs.close();
    runs_end(&engine).await;
    drained.cancel();
    helpers.close();
    helpers.wait().await;
    // Runs that were woken and claimed in the last moment are handed back.
    runs_end(&engine).await;
    match engine.store.deregister(engine.worker, engine.settings.backoff).await {
        Ok(freed) => {
            telemetry::unknown_too_often(&freed.stuck);
            telemetry::handlers_retired(engine.worker, &freed.retired);
        }
        Err(error) => telemetry::operation_abandoned(engine.worker, "deregistration", &error),
    }
    telemetry::stopped(engine.worker);
    engine.stopped.cancel();
}

/// Runs a helper task. If it panics, the engine stops and the session ends, so that other workers take the runs over.
async fn helped_by(engine: Arc<Engine>, task: BoxFuture<'static, ()>, drained: CancellationToken) {
    if AssertUnwindSafe(task).catch_unwind().await.is_err() {
        engine.note_failed();
        telemetry::engine_failed(engine.worker);
        engine.stop();
        drained.cancel();
    }
}

/// Returns when no run is in flight, or the runs in flight are given up: they become free when this worker leaves.
async fn runs_end(engine: &Engine) {
    tokio::select! {
        biased;
        () = engine.runs.wait() => {}
        () = engine.running.given_up() => {}
    }
}
