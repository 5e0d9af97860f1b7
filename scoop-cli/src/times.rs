//! Times and durations: read from arguments, and written.

use std::time::{Duration, SystemTime};

use jiff::civil::Date;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, Unit};

/// The time in UTC, to the millisecond, in ISO 8601.
pub(crate) fn utc(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| "(time out of range)".into(), |time| format!("{time:.3}"))
}

/// The duration in its two largest units, such as `1h 4m`; below a minute with tenths of a second.
pub(crate) fn in_words(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_millis());
    }
    if duration < Duration::from_mins(1) {
        return match duration.subsec_millis() / 100 {
            0 => format!("{}s", duration.as_secs()),
            tenths => format!("{}.{tenths}s", duration.as_secs()),
        };
    }
    let exact = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    let seconds = exact.as_secs();
    let (days, left) = (seconds / 86_400, Duration::from_secs(seconds.unsigned_abs() % 86_400));
    let unit = if days > 0 {
        Unit::Hour
    } else if seconds >= 3_600 {
        Unit::Minute
    } else {
        Unit::Second
    };
    let left = SignedDuration::try_from(left).unwrap_or_default();
    // Downwards: a time that is not over is not shown as over.
    let rounding = jiff::SignedDurationRound::new().smallest(unit).mode(jiff::RoundMode::Trunc);
    let left = left.round(rounding).unwrap_or(left);
    match (days, left.is_zero()) {
        (0, _) => format!("{left:#}"),
        (_, true) => format!("{days}d"),
        (_, false) => format!("{days}d {left:#}"),
    }
}

/// Reads a duration, such as `90s`, `1h 30m` or `7 days`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = |_| format!("{text:?} is no duration; write it like `90s`, `1h 30m` or `7 days`");
    let span: Span = text.parse().map_err(wrong)?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| {
        format!("{text:?} has months or years, which differ in length; write it in days, hours, minutes and seconds")
    })?;
    Duration::try_from(exact).map_err(|_| format!("{text:?} is a duration of less than nothing"))
}

/// Reads a time: RFC 3339, a date (its beginning, in UTC), or a duration, which means so long ago.
pub(crate) fn time(text: &str) -> Result<SystemTime, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.into());
    }
    // A text with a time of day but without an offset is no time: it is refused below, not read as a date.
    if let Some(date) = (text.len() == 10).then(|| text.parse::<Date>().ok()).flatten() {
        let midnight = jiff::tz::TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0));
        return midnight.map(Into::into).map_err(|error| error.to_string());
    }
    let ago = duration(text).map_err(|_| {
        format!("{text:?} is no time; write it like `2026-06-25T12:31:37Z`, `2026-06-25` or `2h` for two hours ago")
    })?;
    SystemTime::now().checked_sub(ago).ok_or_else(|| format!("{text:?} ago is before all times"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, seconds, written) in [
            ("90s", 90, "1m 30s"),
            ("1h 30m", 5_400, "1h 30m"),
            ("2 hours", 7_200, "2h"),
            ("7 days", 604_800, "7d"),
            ("1 week 3h 59m", 604_800 + 14_340, "7d 3h"),
            ("0s", 0, "0ms"),
        ] {
            let read = duration(text).unwrap();
            assert_eq!(read, Duration::from_secs(seconds), "{text}");
            assert_eq!(in_words(read), written);
        }
        assert_eq!(in_words(Duration::from_millis(1_999)), "1.9s");
        assert_eq!(in_words(Duration::from_secs(59)), "59s");
        for wrong in ["", "7", "soon", "1 month", "-1h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_read_and_written() {
        let noon = time("2026-06-25T14:00:00.5+02:00").unwrap();
        assert_eq!(utc(noon), "2026-06-25T12:00:00.500Z");
        assert_eq!(utc(time("2026-06-25").unwrap()), "2026-06-25T00:00:00.000Z");
        let two_hours_ago = time("2h").unwrap();
        let ago = SystemTime::now().duration_since(two_hours_ago).unwrap();
        assert!(ago >= Duration::from_secs(7_200) && ago < Duration::from_secs(7_260));
        for wrong in ["2026-06-25T14:00:00", "yesterday", "2026-13-01"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
