//! Pauses of handlers, of topics, and of everything.
//!
//! A pause is a change of the topology: its transaction raises `worker.topology` of all workers. So no claim needs a
//! condition about pauses: under the former number it takes nothing, and a worker reads the new number together with the
//! pauses (`topology_read.sql`).
//!
//! * A run in execution is handed back before its next step (`Execution::is_left`).
//! * A worker acknowledges a pause after its queues have changed (`worker_acknowledge.sql`). The statement waits for claims
//!   of the worker under way. So once all living workers have acknowledged and own no running run of the handler, no step
//!   begins before the end of the pause.
//! * Several workers may find that a pause is over. They lock the topology first, and only the one that deletes the row
//!   commits.
//! * A renamed saga is paused under all names of its rows in `handler`: the view `paused`.
//! * A pause for new runs only leaves the queues to claims, with a mark (`ClaimQueues::begun_only`): they pass over new runs
//!   (`scoop.is_new`).

use std::time::Duration;

use uuid::Uuid;

use crate::model::pause::PauseTarget;

/// A pause as it is requested.
#[derive(Clone, Debug)]
pub(crate) struct NewPause {
    pub(crate) target: PauseTarget,
    pub(crate) reason: Option<String>,
    pub(crate) source: String,
    pub(crate) limit: Option<Duration>,
    pub(crate) new_runs_only: bool,
}

/// How far a pause has taken effect.
#[derive(Debug)]
pub(crate) struct PauseProgress {
    pub(crate) in_force: bool,
    /// Whether a handler that it covers was ever registered.
    pub(crate) is_known: bool,
    /// The living workers that may not know of it yet.
    pub(crate) behind: Vec<Uuid>,
    /// The number of runs that it covers and that living workers execute.
    pub(crate) running: usize,
}

/// The maximum value of [`PauseProgress::running`], and of runs that are left.
pub(crate) const RUNNING_MAX: usize = 1_000;

pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
