//! The wait of a run between two steps, for a time.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::timestamp;

/// What a run waits for after a step, besides its children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The time before which the run does not continue.
    #[serde(with = "time::serde::rfc3339")]
    until: OffsetDateTime,
}

impl Wait {
    /// Waits until this time, with a resolution of microseconds. A time outside the years 1 to 9999 becomes the
    /// nearest one in that range.
    pub fn until(time: OffsetDateTime) -> Self {
        Self { until: timestamp::clamp(time) }
    }

    /// The time.
    pub fn time(&self) -> OffsetDateTime {
        self.until
    }

    /// Waits for this and for another wait: the later time counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if other.until > self.until { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wait_is_stored_as_its_time() {
        let at = OffsetDateTime::from_unix_timestamp_nanos(1_782_390_697_123_456_789).unwrap();
        let wait = Wait::until(at);
        let stored = json!({ "until": "2026-06-25T12:31:37.123456Z" });
        assert_eq!(serde_json::to_value(&wait).unwrap(), stored);
        assert_eq!(serde_json::from_value::<Wait>(stored).unwrap(), wait);
    }

    #[test]
    fn of_two_waits_the_later_counts() {
        let wait = |second| Wait::until(OffsetDateTime::from_unix_timestamp(second).unwrap());
        assert_eq!(wait(1).and(wait(2)), wait(2));
        assert_eq!(wait(2).and(wait(1)), wait(2));
    }
}
