//! The server's clock, as well as this process can tell it.
//!
//! Instants that are compared with the server's clock are made from it, too: processes whose own
//! clocks differ agree on when something is due.

use std::time::{Duration, Instant, SystemTime};

use time::OffsetDateTime;

use crate::RuntimeError;
use crate::store::Sessions;
use crate::sync::{Mutex, lock};

/// How long a reading is good for. Until then the time that has passed is added to it.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// The server's clock.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    reading: Mutex<Option<Reading>>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    asked: Instant,
    answered: Instant,
    /// What the clock said at some moment between.
    time: OffsetDateTime,
}

/// What time it is, as closely as can be told from here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// It is at least so late: what was due by then is due.
    pub(crate) earliest: OffsetDateTime,
    /// It is at most so late: what comes after it has still to come.
    pub(crate) latest: OffsetDateTime,
}

impl Reading {
    fn now(&self) -> Now {
        Now { earliest: self.time + self.answered.elapsed(), latest: self.time + self.asked.elapsed() }
    }
}

impl ServerClock {
    /// What time it is there. Asks at most once a second.
    pub(crate) async fn now(&self, sessions: &Sessions) -> sqlx::Result<Now> {
        let known = *lock(&self.reading);
        if let Some(reading) = known.filter(|reading| reading.asked.elapsed() < GOOD_FOR) {
            return Ok(reading.now());
        }
        let asked = Instant::now();
        let ask = sqlx::query_scalar("SELECT clock_timestamp()");
        let time = sessions.run(async |session| ask.fetch_one(session).await).await?;
        let reading = Reading { asked, answered: Instant::now(), time };
        *lock(&self.reading) = Some(reading);
        Ok(reading.now())
    }
}

/// A time of the server as the time that has passed since 1970.
pub(crate) fn since_1970(time: OffsetDateTime) -> Duration {
    Duration::try_from(time - OffsetDateTime::UNIX_EPOCH).unwrap_or_default()
}

/// A point in time, as one says it: some time from now, or an instant.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// use std::time::{Duration, SystemTime};
/// use scoop::When;
///
/// let soon: When = Duration::from_secs(5).into();
/// let at_once: When = SystemTime::now().into();
/// # let _ = (soon, at_once);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After this time, counted from now, by the clock of the server.
    In(Duration),
    /// At this instant.
    At(SystemTime),
}

impl From<Duration> for When {
    fn from(duration: Duration) -> Self {
        Self::In(duration)
    }
}

impl From<SystemTime> for When {
    fn from(instant: SystemTime) -> Self {
        Self::At(instant)
    }
}

impl When {
    /// The instant, `now` being what the server's clock says.
    pub(crate) fn instant(self, now: OffsetDateTime) -> Result<OffsetDateTime, RuntimeError> {
        let instant = match self {
            Self::In(duration) => {
                time::Duration::try_from(duration).ok().and_then(|duration| now.checked_add(duration))
            }
            Self::At(instant) => match instant.duration_since(SystemTime::UNIX_EPOCH) {
                Ok(since) => time::Duration::try_from(since)
                    .ok()
                    .and_then(|since| OffsetDateTime::UNIX_EPOCH.checked_add(since)),
                Err(before) => time::Duration::try_from(before.duration())
                    .ok()
                    .and_then(|before| OffsetDateTime::UNIX_EPOCH.checked_sub(before)),
            },
        };
        // PostgreSQL knows years before Christ, the protocol's notation does not.
        let told = instant.filter(|instant| (1..=9999).contains(&instant.year()));
        told.ok_or_else(|| RuntimeError::Time { when: format!("{self:?}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_answer_leaves_room_for_both_opinions() {
        let (asked, second) = (Instant::now(), Duration::from_secs(1));
        let reading = Reading { asked, answered: asked + second, time: OffsetDateTime::UNIX_EPOCH };
        let Now { earliest, latest } = reading.now();
        assert!(earliest <= OffsetDateTime::UNIX_EPOCH + second, "{earliest}");
        assert!(latest >= earliest, "{latest}");
    }

    #[test]
    fn instants_that_cannot_be_written_are_refused() {
        let now = OffsetDateTime::UNIX_EPOCH;
        assert!(When::In(Duration::MAX).instant(now).is_err());
        assert!(When::In(Duration::from_secs(8_100 * 366 * 86_400)).instant(now).is_err());
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(8_100 * 366 * 86_400);
        let error = When::At(far).instant(now).unwrap_err().to_string();
        assert!(error.contains("beyond what can be told"), "{error}");
        let earlier = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(When::At(earlier).instant(now).unwrap(), now - Duration::from_secs(1));
    }

    #[test]
    fn a_time_is_what_has_passed_since_1970() {
        let day = Duration::from_secs(86_400);
        assert_eq!(since_1970(OffsetDateTime::UNIX_EPOCH + day), day);
        assert_eq!(since_1970(OffsetDateTime::UNIX_EPOCH - day), Duration::ZERO, "nothing has");
    }
}
