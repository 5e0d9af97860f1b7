//! Executes the sagas of this process: claim, execute, settle, wake.
//!
//! * [`claim`]: claims ready runs from the working set, many at a time.
//! * [`hand_over`]: starts runs that this process launches or wakes, without a separate claim.
//! * [`definitions`]: the runs that are left to workers with newer or older definitions.
//! * [`execute`]: executes a run step by step; [`call`] calls the code of the user (behind the boundary of
//!   [`user_code`]),
//!   and [`lanes`] persists the conclusion.
//! * [`running`]: the user code that runs, and the moment when the engine stops waiting for it.
//! * [`connections`]: the transactions of steps.
//! * [`outcome`]: outcomes reported to operators.
//! * [`settle`]: persists conclusions, many runs at a time, of steps without a transaction.
//! * [`wake`]: notifies the claimer, parents, other processes and clients.
//! * [`time`]: detects by the clock what is due, without a notification.
//! * [`schedule`]: launches the ticks of scheduled sagas.
//! * [`liveness`]: shows other processes that this one lives, and takes over the runs of dead ones.
//!
//! Correctness rests on the epoch of a run: each claim and each settlement raises it, and each settlement demands it.
//! So a worker whose run was taken over writes nothing. Notifications only reduce latency; polling finds what they
//! miss.

mod call;
mod claim;
mod connections;
mod definitions;
mod execute;
mod hand_over;
mod lanes;
mod liveness;
mod outcome;
mod recall;
mod running;
mod schedule;
mod settle;
mod shares;
mod suspects;
mod time;
mod user_code;
mod wake;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::RuntimeError;
use crate::ids;
use crate::registry::{Registry, Sagas, Scheduled, Subscription};
use crate::settings::Settings;
use crate::store::{Key, Launched, Store, Surroundings};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::telemetry;
use crate::unhandled::UnhandledWarnings;
pub(crate) use connections::{Connections, Opened};
pub(crate) use hand_over::Start;
pub use running::RunningStep;
use scoop_core::{Failure, Run};
pub use time::StopSignal;
pub(crate) use wake::{Bell, End, Waiters};

/// Prefix of the identifier of a worker in the events that it writes. It distinguishes them from events of other
/// participants.
pub(crate) const IDENTIFIER_PREFIX: &str = "scoop-rs:";

/// The state that the tasks of the engine share.
pub(crate) struct Engine {
    store: Store,
    subscriptions: Vec<Subscription>,
    schedules: Vec<Scheduled>,
    definitions: definitions::Definitions,
    settings: Settings,
    worker: Uuid,
    identifier: String,
    /// The runs in flight, each with its claim. Other runs that the database assigns to this worker are lost, and are
    /// reconciled.
    in_flight: Mutex<BTreeSet<(Uuid, i64)>>,
    /// Set when an answer of the database was lost: then the assignments in the database may differ from `in_flight`.
    in_doubt: AtomicBool,
    /// Set when it is time to reconcile without a known reason.
    sweeps: AtomicBool,
    /// The definitions that the worker claims for.
    slots: Arc<Semaphore>,
    spare: shares::Spare,
    shares: shares::Shares,
    suspects: suspects::Suspects,
    /// None for a database in memory.
    pub(crate) connections: Option<Connections>,
    settler: settle::Settler,
    wakeups: wake::Wakeups,
    watched: time::Watched,
    pub(crate) waiters: Waiters,
    pub(crate) unhandled: Arc<UnhandledWarnings>,
    stopping: CancellationToken,
    stopped: CancellationToken,
    /// Cancelled when the task of the engine is gone: after a stop, or with its runtime.
    gone: CancellationToken,
    runs: TaskTracker,
    running: running::Running,
    /// The codes of failures with values that their types did not read.
    unread: Mutex<BTreeSet<&'static str>>,
}

impl Engine {
    /// Starts all tasks. Returns when this worker is registered.
    pub(crate) async fn start(
        store: Store,
        connections: Option<Connections>,
        registry: Registry,
        settings: Settings,
    ) -> sqlx::Result<Arc<Self>> {
        user_code::record_locations();
        let worker = ids::now_v7();
        let Registry { sagas, subscriptions, schedules } = registry;
        let definitions = definitions::Definitions::publish(&store, sagas).await?;
        let (settler, settlements) = settle::Settler::new();
        let (wakeups, parents) = wake::Wakeups::new();
        let (spare, slots) = shares::Spare::of(settings.concurrency);
        let engine = Arc::new(Self {
            slots: Arc::new(Semaphore::new(slots)),
            spare,
            shares: shares::Shares::default(),
            suspects: suspects::Suspects::default(),
            connections,
            unhandled: UnhandledWarnings::new(store.clone()),
            store,
            subscriptions,
            schedules,
            definitions,
            settings,
            worker,
            identifier: format!("{IDENTIFIER_PREFIX}{worker}"),
            in_flight: Mutex::default(),
            in_doubt: AtomicBool::new(false),
            sweeps: AtomicBool::new(false),
            settler,
            wakeups,
            watched: time::Watched::default(),
            waiters: Waiters::default(),
            stopping: CancellationToken::new(),
            stopped: CancellationToken::new(),
            gone: CancellationToken::new(),
            runs: TaskTracker::new(),
            running: running::Running::default(),
            unread: Mutex::default(),
        });
        // Before this worker is registered: workers with former names of these sagas then look for the new ones.
        engine.store.publish(&engine.subscriptions).await?;
        let session = liveness::Session::open(&engine).await?;
        if let Err(error) = engine.publish().await {
            session.close().await;
            return Err(error);
        }
        telemetry::started(worker, engine.subscriptions.len() - 1, engine.settings.concurrency);
        tokio::spawn(engine.clone().serve(session, settlements, parents));
        Ok(engine)
    }

    /// Registers the schedules of this program, and warns of runs that wait for its sagas.
    async fn publish(&self) -> sqlx::Result<()> {
        schedule::publish(self).await?;
        definitions::look(self).await?;
        for (topic, saga) in self.store.abandoned_sagas().await? {
            telemetry::saga_missing(self.worker, &saga, &topic);
        }
        claim::disown(self).await
    }

    /// Runs until it is stopped, then shuts down: no new claims; running steps end and are settled; their runs are
    /// handed back, and the other workers are notified.
    async fn serve(
        self: Arc<Self>,
        session: liveness::Session,
        settlements: settle::Queue,
        parents: wake::Parents,
    ) {
        let _gone = self.gone.clone().drop_guard();
        let drained = CancellationToken::new();
        // After a panic below, the session ends, so that other workers take the runs over.
        let _drained = drained.clone().drop_guard();
        let helpers = TaskTracker::new();
        let spawn =
            |task: BoxFuture<'static, ()>| helpers.spawn(self.clone().helped_by(task, drained.clone()));
        spawn(liveness::keep(self.clone(), session, drained.clone()).boxed());
        spawn(liveness::reap(self.clone()).boxed());
        spawn(schedule::serve(self.clone()).boxed());
        spawn(wake::tell_parents(self.clone(), parents, drained.clone()).boxed());
        spawn(time::keep(self.clone(), drained.clone()).boxed());
        spawn(time::watch(self.clone(), drained.clone()).boxed());
        spawn(wake::tell_others(self.clone(), drained.clone()).boxed());
        for _ in 0..settle::SETTLERS {
            spawn(settle::serve(self.clone(), settlements.clone(), drained.clone()).boxed());
        }
        claim::serve(self.clone()).await;

        self.runs.close();
        self.runs_end().await;
        drained.cancel();
        helpers.close();
        helpers.wait().await;
        // Runs that were woken and claimed in the last moment are handed back.
        self.runs_end().await;
        match self.store.leave(self.worker, self.settings.backoff).await {
            Ok(freed) => telemetry::unknown_too_often(&freed.stuck),
            Err(error) => telemetry::operation_abandoned(self.worker, "deregistration", &error),
        }
        telemetry::stopped(self.worker);
        self.stopped.cancel();
    }

    /// Runs a helper task. If it panics, the engine stops and the session ends, so that other workers take the runs over.
    async fn helped_by(self: Arc<Self>, task: BoxFuture<'static, ()>, drained: CancellationToken) {
        if AssertUnwindSafe(task).catch_unwind().await.is_err() {
            telemetry::engine_failed(self.worker);
            self.stop();
            drained.cancel();
        }
    }

    /// Returns when no run is in flight, or the runs in flight are given up: they become free when this worker leaves.
    async fn runs_end(&self) {
        tokio::select! {
            biased;
            () = self.runs.wait() => {}
            () = self.running.given_up() => {}
        }
    }

    /// Stops the engine. Repeated calls have no effect.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    /// Returns when the engine has stopped.
    ///
    /// # Errors
    ///
    /// If it never will, since its runtime is gone.
    pub(crate) async fn stopped(&self) -> Result<(), RuntimeError> {
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => Ok(()),
            () = self.gone.cancelled() => Err(RuntimeError::EngineGone),
        }
    }

    /// Returns when the engine is gone without having stopped.
    pub(crate) async fn lost(&self) {
        self.gone.cancelled().await;
        if self.stopped.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    /// Stops the engine, and stops the user code that still runs after this time.
    ///
    /// # Errors
    ///
    /// The user code that was stopped; or as [`Engine::stopped`].
    pub(crate) async fn stop_within(&self, limit: Duration) -> Result<(), RuntimeError> {
        self.stop();
        if let Ok(stopped) = tokio::time::timeout(limit, self.stopped()).await {
            return stopped;
        }
        let steps = self.running.steps();
        self.running.abandon();
        self.stopped().await?;
        if steps.is_empty() { Ok(()) } else { Err(RuntimeError::StepsStopped { limit, steps }) }
    }

    /// The sagas of this process, under all names that are known of them.
    fn sagas(&self) -> Arc<Sagas> {
        self.definitions.sagas()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The signal that this run should stop.
    pub(crate) fn watch(&self, key: Key) -> StopSignal {
        self.watched.watch(key)
    }

    /// Why a run has to give up. `None` if it need not, or is not held by this worker any more.
    pub(crate) async fn reasons_to_give_up(
        &self,
        key: Key,
        run: &Run,
        surroundings: Surroundings,
    ) -> sqlx::Result<Vec<Failure>> {
        let Some(asked) = self.store.give_up(key).await? else {
            return Ok(vec![]);
        };
        let undoing = surroundings.undoing || run.is_backward();
        let mut reasons = asked.requests;
        reasons.extend(asked.context.missed_deadlines(undoing, asked.now, asked.since, &run.source));
        if reasons.is_empty() {
            reasons.push(Failure::new("GaveUp", "cancelled without a recorded reason", &run.source));
        }
        Ok(reasons)
    }

    /// Reacts to a request to cancel, of this process or another one.
    pub(crate) fn look_up(&self) {
        self.wakeups.claimer.notify_one();
        self.wakeups.clock.notify_one();
        self.watched.look();
    }

    /// Reacts to a request to cancel. Waiting runs that it marked may be ready.
    pub(crate) fn asked_to_give_up(&self, runs: Vec<crate::store::Parent>) {
        for run in runs {
            self.wakeups.child_ended(run, None);
        }
        self.look_up();
        self.wakeups.others.notify_one();
    }

    /// Launches messages. Their runs begin here at once, if there are slots.
    /// After an attempt with an unknown outcome, the messages that it launched are skipped.
    pub(crate) async fn launch(
        self: &Arc<Self>,
        messages: &mut Arc<Vec<Launched>>,
        again: bool,
    ) -> sqlx::Result<Start> {
        hand_over::launch(self, messages, again).await
    }

    /// Whether sagas of this process handle what is launched on this topic.
    pub(crate) fn has_handlers_of(&self, topic: &str) -> bool {
        self.sagas().handlers_of(topic).next().is_some()
    }

    /// Announces ready runs of these handlers.
    pub(crate) fn announce(&self, handlers: &[String]) {
        let sagas = self.sagas();
        let own = handlers.iter().any(|handler| sagas.has(handler));
        // Where several definitions are in use, the run may be one that is reserved for another worker, or for this
        // one.
        let foreign = |handler: &String| !sagas.has(handler) || self.definitions.is_contested(handler);
        if own {
            self.wakeups.claimer.notify_one();
        }
        let busy = self.slots.available_permits() == 0 || self.stopping.is_cancelled();
        if (busy && own) || handlers.iter().any(foreign) {
            self.wakeups.others.notify_one();
        }
    }

    /// Has the timer look again: something becomes due at a certain time.
    pub(crate) fn set_a_time(&self) {
        self.wakeups.clock.notify_one();
    }

    /// Has the claimer poll: a transaction of another component may soon commit ready runs without a notification.
    pub(crate) fn expect(&self) {
        self.wakeups.expected.store(true, Ordering::Relaxed);
        self.wakeups.claimer.notify_one();
    }

    /// Has the worker reconcile, since an answer of the database was lost.
    fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
        self.wakeups.doubts.notify_one();
        self.wakeups.claimer.notify_one();
    }

    /// Has the worker reconcile, although no answer is known to be lost.
    fn sweep(&self) {
        self.sweeps.store(true, Ordering::Relaxed);
        self.wakeups.doubts.notify_one();
        self.wakeups.claimer.notify_one();
    }

    fn in_flight(&self) -> MutexGuard<'_, BTreeSet<(Uuid, i64)>> {
        lock(&self.in_flight)
    }
}
