//! What the engine knows of its own health.

use std::sync::atomic::AtomicBool;

use tokio::time::Instant;

use crate::util::sync::Mutex;

/// What the engine knows of its own health.
#[derive(Default)]
pub(super) struct HealthState {
    /// The time since which the first ready run or deadline of this worker is due, by its last look.
    pub(super) due_since: Mutex<Option<Instant>>,
    pub(super) has_session: AtomicBool,
    pub(super) has_failed: AtomicBool,
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
