//! The server's clock, as an interval that this process computes from a recent reading.
//!
//! Instants that are compared with the server's clock are derived from that clock. So processes agree on due times
//! although their own clocks differ.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;

use crate::RuntimeError;
use crate::error::ErrorKind;

/// An interval that contains the server's current time.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// A lower bound of the time: anything due by then is due.
    pub earliest: OffsetDateTime,
    /// An upper bound of the time: anything after it is in the future.
    pub latest: OffsetDateTime,
}

/// A point in time: a duration from now, or an instant.
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
    /// The instant; `now` is the time of the server's clock.
    #[doc(hidden)]
    pub fn instant(self, now: OffsetDateTime) -> Result<OffsetDateTime, RuntimeError> {
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
        // PostgreSQL supports years before 1, the notation of the protocol does not.
        let in_range = instant.filter(|instant| (1..=9999).contains(&instant.year()));
        in_range.ok_or_else(|| RuntimeError::from(ErrorKind::Time { when: format!("{self:?}") }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instant_outside_the_years_1_to_9999_is_refused() {
        let now = OffsetDateTime::UNIX_EPOCH;
        assert!(When::In(Duration::MAX).instant(now).is_err());
        assert!(When::In(Duration::from_secs(8_100 * 366 * 86_400)).instant(now).is_err());
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(8_100 * 366 * 86_400);
        let error = When::At(far).instant(now).unwrap_err().to_string();
        assert!(error.contains("out of range"), "{error}");
        let earlier = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(When::At(earlier).instant(now).unwrap(), now - Duration::from_secs(1));
    }
}
