//! User settings and their defaults.

use std::time::Duration;

use scoop_core::FAILURE_TEXT_BYTES_MAX;
use scoop_core::wait::WaitPlan;

use crate::error::SetupError;
use crate::model::backoff::Backoff;
use crate::model::program::Program;
use crate::model::retention::{RETENTION_MIN, Retention};
use crate::rehearsal::Rehearsal;
use crate::store::Archive;
use crate::util::payload;
use crate::util::retries::RETRY_FOR;

/// The connection that listens, and whose session shows that this process lives.
pub(crate) const LISTENING_CONNECTIONS: u32 = 1;

/// The connections to claim, settle and wake.
pub(crate) const WORKING_CONNECTIONS: u32 = 3;

/// The connections of the engine. It opens them beside the user's pool, but within the limit of that pool.
pub(crate) const ENGINE_CONNECTIONS: u32 = LISTENING_CONNECTIONS + WORKING_CONNECTIONS;

/// The connections that a client opens beside the user's pool, to launch and to look up.
pub(crate) const CLIENT_CONNECTIONS: u32 = 2;

/// The number of suspensions and launches of a run that its rollback reads at a time: all of them in an ordinary run.
const HISTORY_ENTRIES: usize = 128;

/// The least maximum size of the texts of a failure, in bytes: a shorter end of a text would say nothing.
pub(crate) const FAILURE_TEXT_BYTES_MIN: usize = 256;

/// The default maximum depth of a hierarchy. Each row of a run contains the ids of all its ancestors, so a chain of a
/// thousand runs takes some 70 MB.
const DEPTH_MAX: usize = 1_000;

/// The settings of one engine.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The maximum number of runs executed at the same time.
    pub(crate) concurrency: usize,
    pub(crate) limits: Limits,
    /// The time for which operations are retried while the database is away.
    pub(crate) retry_for: Duration,
    /// The interval of polling for ready runs without a notification.
    pub(crate) poll_interval: Duration,
    /// The pauses after failures of the database.
    pub(crate) backoff: Backoff,
    /// The number of suspensions and launches that a rollback reads, and has in memory, at a time.
    pub(crate) history_entries: usize,
    /// Whom runs wait for after a launch without a strategy; all registered handlers, if there is none.
    pub(crate) default_wait: Option<WaitPlan>,
    /// The service and the build of the program.
    pub(crate) program: Program,
    /// For how long finished hierarchies are kept.
    pub(crate) retention: Retention,
    /// What gets them before they are deleted.
    pub(crate) archive: Option<Archive>,
    /// The faults that a test injects.
    pub(crate) rehearsal: Option<Rehearsal>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 256,
            limits: Limits::default(),
            retry_for: RETRY_FOR,
            poll_interval: Duration::from_secs(1),
            backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) },
            history_entries: HISTORY_ENTRIES,
            default_wait: None,
            program: Program::default(),
            retention: Retention::default(),
            archive: None,
            rehearsal: None,
        }
    }
}

/// How large the stored values of a program may be, and how deep its hierarchies: for [`Builder::limits`](crate::Builder::limits).
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// let limits = scoop::Limits::default().payload_bytes_max(100_000).depth_max(20);
/// let builder = scoop::Scoop::builder().limits(limits);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Limits {
    pub(crate) payload_bytes_max: usize,
    pub(crate) context_bytes_max: usize,
    pub(crate) failure_text_bytes_max: usize,
    pub(crate) depth_max: usize,
}

impl Limits {
    /// The maximum size of the JSON of a message, or of the value that a step returns, in bytes; by default 1 MiB.
    pub fn payload_bytes_max(self, bytes: usize) -> Self {
        Self { payload_bytes_max: bytes, ..self }
    }

    /// The maximum size of the JSON of a context, in bytes; by default 64 KiB. The context is stored with every
    /// event.
    pub fn context_bytes_max(self, bytes: usize) -> Self {
        Self { context_bytes_max: bytes, ..self }
    }

    /// The maximum size of each stored text of a failure, in bytes; by default 8 KiB. Of a longer text the beginning
    /// and the end are stored. At least 256. See [`Failure::bounded`](scoop_core::Failure::bounded) for the other
    /// bounds of failures.
    pub fn failure_text_bytes_max(self, bytes: usize) -> Self {
        Self { failure_text_bytes_max: bytes, ..self }
    }

    /// The maximum depth of a hierarchy in runs, by default 1,000. A run of a message that a client launched has
    /// depth 1; the runs of the messages that its steps launch have depth 2. A launch beyond the maximum fails, since it is usually the recursion of a saga that launches
    /// itself.
    ///
    /// Each row of a run contains the ids of all its ancestors, 16 bytes each. So the cost of a run grows with its
    /// depth, and that of a chain with the square of its length.
    pub fn depth_max(self, runs: usize) -> Self {
        Self { depth_max: runs, ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: payload::BYTES_MAX_DEFAULT,
            context_bytes_max: payload::CONTEXT_BYTES_MAX_DEFAULT,
            failure_text_bytes_max: FAILURE_TEXT_BYTES_MAX,
            depth_max: DEPTH_MAX,
        }
    }
}

/// The least time between two looks for what is due.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

impl Retention {
    /// The mistakes in these times.
    pub(crate) fn mistakes(self) -> impl Iterator<Item = SetupError> {
        let times = [
            ("committed", self.committed, RETENTION_MIN),
            ("rolled_back", self.rolled_back, RETENTION_MIN),
            ("every", self.interval, INTERVAL_MIN),
        ];
        let too_short = times.into_iter().filter(|(_, time, least)| time < least);
        too_short.map(|(setting, time, least)| SetupError::RetentionTime { setting, time, least })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Settings::default().backoff;
        let millis: Vec<_> = [0, 1, 2, 9, i32::MAX].map(|n| backoff.pause(n).as_millis()).into();
        assert_eq!(millis, [100, 200, 400, 30_000, 30_000]);
    }
}
