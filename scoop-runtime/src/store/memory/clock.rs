//! The clock of a database in memory: that of tokio, so that where tokio's is paused, time is virtual.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use super::state::after;

pub(super) struct Clock {
    starts_at: OffsetDateTime,
    started: Instant,
    ahead: Mutex<Duration>,
}

impl Clock {
    pub(super) fn new(starts_at: OffsetDateTime) -> Self {
        Self { starts_at: truncate_to_micros(starts_at), started: Instant::now(), ahead: Mutex::default() }
    }

    pub(super) fn now(&self) -> OffsetDateTime {
        let ahead = *self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = self.started.elapsed().saturating_add(ahead);
        let passed = time::Duration::try_from(passed).unwrap_or(time::Duration::MAX);
        truncate_to_micros(self.starts_at.saturating_add(passed))
    }

    /// The time, later than `last`: no two operations have the same time.
    pub(super) fn now_after(&self, last: Option<OffsetDateTime>) -> OffsetDateTime {
        let now = self.now();
        last.map_or(now, |last| now.max(after(last)))
    }

    pub(super) fn advance(&self, by: Duration) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        *ahead = ahead.saturating_add(by);
    }
}

fn truncate_to_micros(time: OffsetDateTime) -> OffsetDateTime {
    let micros = time.microsecond();
    time.replace_microsecond(micros).unwrap_or(time)
}
