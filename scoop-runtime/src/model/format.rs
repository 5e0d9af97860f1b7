//! Formats times and durations.

use std::time::{Duration, SystemTime};

use scoop_core::wait::MessageWait;
use time::OffsetDateTime;

/// The time in the type of the standard library.
pub fn system_time(time: OffsetDateTime) -> SystemTime {
    time.into()
}

/// Formats the time in UTC, to the millisecond, in ISO 8601.
pub fn utc(time: SystemTime) -> String {
    let Some(time) = offset_date_time(time) else {
        return "(time out of range)".into();
    };
    let (hour, minute, second, millis) = time.time().as_hms_milli();
    let (year, month, day) = time.to_calendar_date();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// As [`utc`], or a note that the time could not be read.
pub(crate) fn utc_if_known(time: Option<SystemTime>) -> String {
    time.map_or_else(|| "(unreadable time)".into(), utc)
}

pub(crate) fn offset_date_time(time: SystemTime) -> Option<OffsetDateTime> {
    let epoch = OffsetDateTime::UNIX_EPOCH;
    let shift = |by: Duration| time::Duration::try_from(by).ok();
    let shifted = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => epoch.checked_add(shift(since)?),
        Err(before) => epoch.checked_sub(shift(before.duration())?),
    };
    shifted.filter(|time| (1..=9999).contains(&time.year()))
}

/// Formats the duration in its two largest units.
pub fn humane(duration: Duration) -> String {
    let (millis, seconds) = (duration.as_millis(), duration.as_secs());
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0 if millis == 0 && duration >= Duration::from_micros(100) => {
            format!("0.{} ms", duration.as_micros() / 100)
        }
        0 => format!("{millis} ms"),
        1..60 => format!("{seconds}.{} s", duration.subsec_millis() / 100),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// Whom a run waits for by a strategy, and until when.
pub fn strategy(message: &MessageWait, now: Option<SystemTime>) -> String {
    let until = message.plan.until().map(|until| format!(", until {}", ahead(until.into(), now)));
    format!("{message}{}", until.unwrap_or_default())
}

/// Formats the time and its distance from `now`.
pub fn ahead(time: SystemTime, now: Option<SystemTime>) -> String {
    let left = now.and_then(|now| time.duration_since(now).ok()).filter(|left| !left.is_zero());
    let left = left.map_or_else(String::new, |left| format!(" (in {})", humane(left)));
    format!("{}{left}", utc(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> SystemTime {
        let since = Duration::from_millis(millis.unsigned_abs());
        if millis < 0 { SystemTime::UNIX_EPOCH - since } else { SystemTime::UNIX_EPOCH + since }
    }

    #[test]
    fn times_are_written_in_utc_to_the_millisecond() {
        assert_eq!(utc(at(1_782_390_697_123)), "2026-06-25T12:31:37.123Z");
        assert_eq!(utc(at(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(at(-1)), "1969-12-31T23:59:59.999Z");
        assert_eq!(utc(at(-62_135_596_800_000)), "0001-01-01T00:00:00.000Z");
        assert_eq!(utc(at(i64::MAX)), "(time out of range)");
        assert_eq!(utc_if_known(None), "(unreadable time)");
        assert_eq!(ahead(at(1_200), Some(at(0))), "1970-01-01T00:00:01.200Z (in 1.2 s)");
        assert_eq!(ahead(at(0), Some(at(0))), "1970-01-01T00:00:00.000Z");
        assert_eq!(ahead(at(0), Some(at(1))), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn duration_is_shown_in_its_largest_units() {
        let humane_micros = |micros| humane(Duration::from_micros(micros));
        let second = 1_000_000;
        let (minute, hour) = (60 * second, 3600 * second);
        for (micros, expected) in [
            (0, "0 ms"),
            (99, "0 ms"),
            (400, "0.4 ms"),
            (34_900, "34 ms"),
            (second - 1, "999 ms"),
            (second, "1.0 s"),
            (1_290_000, "1.2 s"),
            (minute - 1, "59.9 s"),
            (minute + 20 * second, "1 min 20 s"),
            (2 * hour + 5 * minute, "2 h 5 min"),
            (13 * 24 * hour + 4 * hour, "13 d 4 h"),
        ] {
            assert_eq!(humane_micros(micros), expected);
        }
    }
}
