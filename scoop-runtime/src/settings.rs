//! What a user may set, with the values that are right for most.

use std::time::Duration;

use scoop_core::FAILURE_TEXT_BYTES_MAX;

use crate::patience::PATIENCE;
use crate::payload;
use crate::scoop::Limits;
use crate::testing::Rehearsal;

/// The connection that listens, and shows that this process lives.
pub(crate) const LISTENING_CONNECTIONS: u32 = 1;

/// The connections to claim, settle and wake.
pub(crate) const WORKING_CONNECTIONS: u32 = 3;

/// The connections that the engine itself needs. It opens them by itself, beside the user's pool but
/// within what that allows.
pub(crate) const ENGINE_CONNECTIONS: u32 = LISTENING_CONNECTIONS + WORKING_CONNECTIONS;

/// The connections that a client opens by itself to launch and to look up.
pub(crate) const CLIENT_CONNECTIONS: u32 = 2;

/// How many suspensions and launches of a run its rollback reads at a time: all that an ordinary run has.
const HISTORY_ENTRIES: usize = 128;

/// The least number of bytes of a text of a failure that can be set: with less, the end of a text says nothing.
pub(crate) const FAILURE_TEXT_BYTES_MIN: usize = 256;

/// How many runs may be above each other: each row of a run has the ids of all above it, so that a chain of a thousand
/// runs takes some 70 MB.
const DEPTH_MAX: usize = 1_000;

/// The settings of one engine.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How many runs are worked on at the same time.
    pub(crate) concurrency: usize,
    /// How large a payload, or what a step returns, may be.
    pub(crate) payload_bytes_max: usize,
    /// How large a context may be.
    pub(crate) context_bytes_max: usize,
    /// How many bytes of each text of a failure are stored.
    pub(crate) failure_text_bytes_max: usize,
    /// How many runs may be above each other in a hierarchy.
    pub(crate) depth_max: usize,
    /// For how long operations are retried while the database is away.
    pub(crate) patience: Duration,
    /// How often to look for ready runs when nobody says that there are any.
    pub(crate) poll_interval: Duration,
    /// The pauses after failures of the database.
    pub(crate) backoff: Backoff,
    /// How many suspensions and launches a rollback reads, and has in memory, at a time.
    pub(crate) history_entries: usize,
    /// What is to go wrong, in tests.
    pub(crate) rehearsal: Option<Rehearsal>,
}

impl Settings {
    pub(crate) fn limits(&self) -> Limits {
        let Self { payload_bytes_max, context_bytes_max, patience, .. } = *self;
        Limits { payload_bytes_max, context_bytes_max, patience }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 256,
            payload_bytes_max: payload::BYTES_MAX_DEFAULT,
            context_bytes_max: payload::CONTEXT_BYTES_MAX_DEFAULT,
            failure_text_bytes_max: FAILURE_TEXT_BYTES_MAX,
            depth_max: DEPTH_MAX,
            patience: PATIENCE,
            poll_interval: Duration::from_secs(1),
            backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) },
            history_entries: HISTORY_ENTRIES,
            rehearsal: None,
        }
    }
}

/// Pauses that double with each attempt in vain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    /// The pause after so many earlier attempts.
    pub(crate) fn pause(&self, attempts: i32) -> Duration {
        let doublings = u32::try_from(attempts).unwrap_or(0).min(20);
        self.first.saturating_mul(1 << doublings).min(self.longest)
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
