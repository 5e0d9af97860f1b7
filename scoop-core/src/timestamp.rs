//! Points in time, as they are stored in JSON.

use time::{Date, Month, OffsetDateTime, Time, UtcOffset};

/// The instant in UTC; `None` outside the years 1 to 9999. PostgreSQL cannot read year 0 in this notation, nor a large
/// UTC offset.
pub(crate) fn representable(at: OffsetDateTime) -> Option<OffsetDateTime> {
    at.checked_to_offset(UtcOffset::UTC).filter(|at| (1..=9999).contains(&at.year()))
}

/// The instant in UTC with a resolution of microseconds, moved to the nearest one in the years 1 to 9999.
pub(crate) fn clamp(at: OffsetDateTime) -> OffsetDateTime {
    let at =
        representable(at).unwrap_or_else(|| if at > OffsetDateTime::UNIX_EPOCH { last() } else { first() });
    at.replace_nanosecond(at.microsecond() * 1_000).unwrap_or(at)
}

/// The last instant, which means never in the protocol.
pub(crate) fn last() -> OffsetDateTime {
    OffsetDateTime::new_utc(Date::MAX, Time::MAX)
}

fn first() -> OffsetDateTime {
    let day = Date::from_calendar_date(1, Month::January, 1).unwrap_or(Date::MIN);
    OffsetDateTime::new_utc(day, Time::MIDNIGHT)
}

#[cfg(test)]
mod tests {
    use time::format_description::well_known::Rfc3339;

    use super::*;

    /// The representable instant, and the nearest one.
    fn read(text: &str) -> (Option<String>, String) {
        let at = OffsetDateTime::parse(text, &Rfc3339).unwrap();
        let write = |at: OffsetDateTime| at.format(&Rfc3339).unwrap();
        (representable(at).map(write), write(clamp(at)))
    }

    #[test]
    fn instant_out_of_range_is_moved_to_the_nearest_one() {
        let same = |text: &str| (Some(text.to_owned()), text.to_owned());
        assert_eq!(read("2026-06-25T12:00:00+23:59"), same("2026-06-24T12:01:00Z"));
        assert_eq!(read("0001-01-01T00:00:00Z"), same("0001-01-01T00:00:00Z"));
        assert_eq!(read("9999-12-31T23:59:59.999999Z"), same("9999-12-31T23:59:59.999999Z"));
        let (first, last) = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z");
        assert_eq!(read("0000-12-31T23:59:59Z"), (None, first.to_owned()));
        assert_eq!(read("0001-01-01T00:00:00+00:01"), (None, first.to_owned()));
        assert_eq!(read("9999-12-31T23:59:59-00:01"), (None, last.to_owned()));
        assert_eq!(read("2026-01-01T00:00:00.1234567Z").1, "2026-01-01T00:00:00.123456Z");
    }
}
