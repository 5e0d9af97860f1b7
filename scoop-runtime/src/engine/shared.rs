//! The state that the tasks of the engine share, and how they wake each other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{RwLock, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::health_state::{EngineState, HealthState};
use super::new_launches::NewLaunches;
use super::settle::queue::Settler;
use super::slots::{ReservedSlots, RunningCounts};
use super::step_stop_signals::StopSignals;
use super::suspects::Suspects;
use super::topology::TopologyCache;
use super::user_code::running::Running;
use super::wakeups::Wakeups;
use crate::completion::Completions;
use crate::engine::decisions::queue::DecisionQueue;
use crate::error::ErrorKind;
use crate::model::subscribed_saga::SubscribedSaga;
use crate::saga::registry::{Sagas, Scheduled};
use crate::settings::Settings;
use crate::store::join::LaunchedSet;
use crate::store::{
    Claimer, JoinSpec, LimitedTopics, ParentRef, QueueCursors, SagaLimit, StepTransactions, Store,
};
use crate::unhandled::UnhandledWarnings;
use crate::util::sync::{Mutex, MutexGuard, lock};
use crate::{RuntimeError, telemetry};

pub(super) const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

pub(crate) struct Engine {
    pub(super) store: Store,
    pub(super) subscriptions: Vec<SubscribedSaga>,
    pub(super) schedules: Vec<Scheduled>,
    pub(super) joins: Vec<Arc<JoinSpec>>,
    pub(super) limits: Vec<SagaLimit>,
    /// The definitions that the worker claims for.
    pub(super) topology: TopologyCache,
    pub(super) settings: Settings,
    pub(super) worker: Uuid,
    pub(super) identifier: String,
    /// The runs in flight, each with its claim. Other runs that the database assigns to this worker are lost, and are
    /// reconciled.
    pub(super) in_flight: Mutex<BTreeSet<(Uuid, i64)>>,
    /// Held for reading from before a signal is sent until the runs that its statement has claimed are in flight: their ids
    /// are not known before.
    pub(super) signal_claims: RwLock<()>,
    /// Set when an answer of the database was lost: then the assignments in the database may differ from `in_flight`.
    pub(super) in_doubt: AtomicBool,
    /// Set when it is time to reconcile without a known reason.
    pub(super) reconcile_due: AtomicBool,
    /// One permit for each run that may be in flight, without the reserved slots.
    pub(super) slots: Arc<Semaphore>,
    pub(super) reserved: ReservedSlots,
    pub(super) running_counts: RunningCounts,
    pub(super) suspects: Suspects,
    /// The positions of the last claim without limits.
    pub(super) queue_cursors: Mutex<QueueCursors>,
    /// None for a database in memory.
    pub(crate) step_transactions: Option<StepTransactions>,
    pub(super) settler: Settler,
    pub(super) launches: NewLaunches,
    pub(super) decisions: DecisionQueue,
    pub(super) wakeups: Wakeups,
    pub(super) stop_signals: StopSignals,
    pub(crate) completions: Completions,
    pub(crate) unhandled: Arc<UnhandledWarnings>,
    pub(super) stopping: CancellationToken,
    pub(super) stopped: CancellationToken,
    /// Cancelled when the task of the engine is gone: after a stop, or with its runtime.
    pub(super) gone: CancellationToken,
    pub(super) runs: TaskTracker,
    pub(super) running: Running,
    pub(super) health_state: HealthState,
    /// The codes of failures with values that their types did not read.
    pub(super) unread: Mutex<BTreeSet<&'static str>>,
}

impl Engine {
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
            () = self.gone.cancelled() => Err(RuntimeError::from(ErrorKind::EngineGone)),
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
        if steps.is_empty() {
            Ok(())
        } else {
            Err(RuntimeError::from(ErrorKind::StepsStopped { limit, steps }))
        }
    }

    /// The sagas of this process, under all names that are known of them.
    pub(super) fn sagas(&self) -> Arc<Sagas> {
        self.topology.sagas()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Reacts to a request to cancel, of this process or another one.
    pub(crate) fn wake_tasks(&self) {
        self.wakeups.wake_claimers();
        self.wakeups.clock.notify_one();
        self.stop_signals.request_check();
    }

    /// Reacts to a request to cancel. Waiting runs that it marked may be ready.
    pub(crate) fn on_cancelled(&self, runs: Vec<ParentRef>) {
        for run in runs {
            self.wakeups.child_ended(run, None);
        }
        self.wake_tasks();
        self.wakeups.others.notify_one();
    }

    /// Whether sagas of this process handle what is launched on this topic.
    pub(crate) fn has_handlers_of(&self, topic: &str) -> bool {
        self.sagas().handlers_of(topic).next().is_some()
    }

    /// The topics on which launches need capacity in the queue of a saga.
    pub(crate) fn limited_topics(&self) -> Arc<LimitedTopics> {
        self.topology.limited_topics()
    }

    pub(crate) fn notify_ready(&self, handlers: &[String]) {
        let sagas = self.sagas();
        let mut own = false;
        for handler in handlers.iter().filter(|handler| sagas.has(handler)) {
            if self.topology.is_limited(handler) {
                self.wakeups.add_ready(handler);
            }
            own = true;
        }
        // Where several definitions are in use, the run may be one that is reserved for another worker, or for this
        // one.
        let foreign = |handler: &String| !sagas.has(handler) || self.topology.is_contested(handler);
        if own {
            self.wakeups.wake_claimers();
        }
        let busy = self.slots.available_permits() == 0 || self.stopping.is_cancelled();
        if (busy && own) || handlers.iter().any(foreign) {
            self.wakeups.others.notify_one();
        }
    }

    /// This worker as a claimer of runs.
    pub(super) fn claimer(&self) -> Claimer<'_> {
        Claimer { worker: self.worker, identifier: &self.identifier }
    }

    /// Has the timer check again, after a launch with a due time or a deadline.
    pub(crate) fn reschedule_timer(&self) {
        self.wakeups.clock.notify_one();
        self.wakeups.wake_limited();
    }

    /// Notifies the handlers of a launched set, and reports the refused messages.
    pub(crate) fn notify_joined(&self, launched: &LaunchedSet) {
        self.notify_ready(&launched.handlers);
        for member in &launched.refused {
            telemetry::join_refused(self.worker, member);
        }
    }

    /// Has the limits of joined messages checked again.
    pub(crate) fn reschedule_joins(&self) {
        self.wakeups.joins.notify_one();
    }

    /// Has the claimer poll: a transaction of another component may soon commit ready runs without a notification.
    pub(crate) fn poll_for_foreign_commit(&self) {
        self.wakeups.expected.store(true, Ordering::Relaxed);
        self.wakeups.wake_claimers();
    }

    /// Has the worker reconcile, since an answer of the database was lost.
    pub(super) fn mark_in_doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
        self.wakeups.in_doubt.notify_one();
        self.wakeups.wake_claimers();
    }

    /// Has the worker reconcile, although no answer is known to be lost.
    pub(super) fn request_reconcile(&self) {
        self.reconcile_due.store(true, Ordering::Relaxed);
        self.wakeups.in_doubt.notify_one();
        self.wakeups.wake_claimers();
    }

    /// Whether this run is in execution in this process.
    pub(crate) fn is_in_flight(&self, run: Uuid) -> bool {
        self.in_flight().range((run, i64::MIN)..=(run, i64::MAX)).next().is_some()
    }

    pub(super) fn in_flight(&self) -> MutexGuard<'_, BTreeSet<(Uuid, i64)>> {
        lock(&self.in_flight)
    }
}

/// Its health.
impl Engine {
    /// For how long the first ready run or deadline of this worker has been due.
    pub(crate) fn lag(&self) -> Duration {
        lock(&self.health_state.due_since).map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether the session that shows that the process lives is open.
    pub(crate) fn has_session(&self) -> bool {
        self.health_state.has_session.load(Ordering::Relaxed)
    }

    /// Whether the worker and the sagas of this program are registered.
    pub(crate) async fn is_registered(&self) -> sqlx::Result<bool> {
        let registration = self.store.registration(self.worker, &self.subscriptions).await?;
        Ok(registration.is_complete())
    }

    pub(crate) fn state(&self) -> EngineState {
        let has_stopped = self.stopped.is_cancelled();
        if self.health_state.has_failed.load(Ordering::Relaxed) || (self.gone.is_cancelled() && !has_stopped)
        {
            EngineState::Failed
        } else if has_stopped || self.stopping.is_cancelled() {
            EngineState::Stopping
        } else {
            EngineState::Running
        }
    }

    /// Notes in how many seconds something is due; negative if it is overdue.
    pub(super) fn note_due(&self, seconds: Option<f64>) {
        let overdue = seconds.and_then(|seconds| Duration::try_from_secs_f64(-seconds).ok());
        *lock(&self.health_state.due_since) = overdue.and_then(|overdue| Instant::now().checked_sub(overdue));
    }

    pub(super) fn note_session(&self, has_session: bool) {
        self.health_state.has_session.store(has_session, Ordering::Relaxed);
    }

    pub(super) fn note_failed(&self) {
        self.health_state.has_failed.store(true, Ordering::Relaxed);
    }
}
