//! The server's clock, as an interval that this process computes from a recent reading.

use std::time::{Duration, Instant};

use time::OffsetDateTime;

use super::pool::Sessions;
use super::query_ext::FetchExt;
use crate::util::sync::{Mutex, lock};
use crate::util::when::Now;

/// The time for which a reading is reused; the time since the reading is added to it.
const READING_VALID_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    reading: Mutex<Option<Reading>>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    asked: Instant,
    answered: Instant,
    /// The server's time at some moment between `asked` and `answered`.
    time: OffsetDateTime,
}

impl Reading {
    fn now(&self) -> Now {
        Now { earliest: self.time + self.answered.elapsed(), latest: self.time + self.asked.elapsed() }
    }
}

impl ServerClock {
    /// The server's current time, read at most once a second.
    pub(crate) async fn now(&self, sessions: &Sessions) -> sqlx::Result<Now> {
        let known = *lock(&self.reading);
        if let Some(reading) = known.filter(|reading| reading.asked.elapsed() < READING_VALID_FOR) {
            return Ok(reading.now());
        }
        let asked = Instant::now();
        let time = sqlx::query_scalar("SELECT clock_timestamp()").one(sessions).await?;
        let reading = Reading { asked, answered: Instant::now(), time };
        *lock(&self.reading) = Some(reading);
        Ok(reading.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_answer_widens_the_interval_to_contain_the_time() {
        let (asked, second) = (Instant::now(), Duration::from_secs(1));
        let reading = Reading { asked, answered: asked + second, time: OffsetDateTime::UNIX_EPOCH };
        let Now { earliest, latest } = reading.now();
        assert!(earliest <= OffsetDateTime::UNIX_EPOCH + second, "{earliest}");
        assert!(latest >= earliest, "{latest}");
    }
}
