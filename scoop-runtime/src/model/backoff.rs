//! Pauses after failures.

use std::time::Duration;

/// Pauses that double with each failed attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    /// The pause after this number of earlier attempts.
    pub(crate) fn pause(&self, attempts: i32) -> Duration {
        let doublings = u32::try_from(attempts).unwrap_or(0).min(20);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}
