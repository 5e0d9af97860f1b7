//! What the engine knows of its own health.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::shared::Engine;
use crate::util::sync::{Mutex, lock};

/// What the engine knows of its own health.
#[derive(Default)]
pub(super) struct HealthState {
    /// The time since which the first ready run or deadline of this worker is due, by its last look.
    due_since: Mutex<Option<Instant>>,
    has_session: AtomicBool,
    has_failed: AtomicBool,
}

/// The state of the engine of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// The program is a client, which executes no sagas.
    Absent,
    /// It claims and executes runs.
    Running,
    /// It stops, or has stopped: it claims nothing, and finishes its steps.
    Stopping,
    /// A task of it panicked, or its runtime has ended. Only a restart of the process helps.
    Failed,
}

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
