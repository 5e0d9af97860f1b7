//! Due times of cron expressions in a time zone.
//!
//! The attributes use this crate at compile time, and the engine at run time, so both agree. Time is an argument, and
//! the zones are those of the IANA database bundled with this crate. So the instants do not depend on the files of the
//! machine.
//!
//! Users depend on `scoop-saga` instead.
//!
//! Times of day are computed as clock readings, then converted to instants. The library that parses the expressions has
//! rules of its own for the hours of clock changes, by which a list of hours runs twice or not at all.

mod expression;
mod zone;

use std::fmt;
use std::time::SystemTime;

use jiff::Timestamp;

use expression::Expression;
use zone::Zone;
pub use zone::similar_zone;

/// A cron expression in a time zone.
///
/// The fields are minute, hour, day of the month, month and day of the week, with seconds before
/// them if there are six. Each is a number, a range `1-5`, a list `1,3`, all `*`, or an interval
/// `*/10`; months and days of the week have names, too: `JAN`, `MON`. `L` is the last day of a
/// month, `5L` its last Friday, `1#2` its second Monday, and `15W` the working day closest to the
/// 15th. If both the day of the month and the day of the week are restricted, one match is enough.
///
/// At a change of clocks, a skipped time of day is due when the clock has been put forward, and a
/// repeated one is due the first time only. If the hour is `*`, real time counts instead: the
/// minutes of a skipped hour are left out, and those of a repeated one are due twice.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use scoop_cron::Cron;
///
/// let nightly = Cron::new("30 2 * * *", "Europe/Prague")?;
/// let next = nightly.next_after(SystemTime::UNIX_EPOCH).unwrap();
/// assert_eq!(next, SystemTime::UNIX_EPOCH + Duration::from_secs(3600 + 1800));
/// # Ok::<(), scoop_cron::CronError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cron {
    expression: Expression,
    zone: Zone,
}

/// The error of an invalid schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CronError {
    /// The cron expression is invalid, with a description of the error.
    Expression(String),
    /// The expression is never due.
    Never,
    /// The IANA database has no such zone.
    Zone,
}

impl Cron {
    /// The expression, in the zone of this name.
    ///
    /// # Errors
    ///
    /// If the expression or the zone is invalid, or if the expression is never due.
    pub fn new(expression: &str, zone: &str) -> Result<Self, CronError> {
        let expression = Expression::parse(expression)?;
        let zone = Zone::named(zone).ok_or(CronError::Zone)?;
        Ok(Self { expression, zone })
    }

    /// The next due time after this one. `None` if that is beyond the calendar.
    pub fn next_after(&self, time: SystemTime) -> Option<SystemTime> {
        let time = Timestamp::try_from(time).ok()?;
        let next = match self.expression.is_hourly() {
            true => self.zone.next_in_real_time(&self.expression, time),
            false => self.zone.next_by_the_clock(&self.expression, time),
        };
        next.map(SystemTime::from)
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expression(why) => f.write_str(why),
            Self::Never => {
                f.write_str("there is no day on which this is due; write one that its months have")
            }
            Self::Zone => f.write_str("there is no such time zone; write one like `Europe/Prague`, or `UTC`"),
        }
    }
}

impl std::error::Error for CronError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next due times, in UTC.
    fn next(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let cron = Cron::new(expression, zone).unwrap();
        let mut time = SystemTime::from(after.parse::<Timestamp>().unwrap());
        let mut times = vec![];
        for _ in 0..count {
            time = cron.next_after(time).expect("it is due again");
            times.push(Timestamp::try_from(time).unwrap().to_string());
        }
        times
    }

    #[test]
    fn times_of_day_are_those_of_the_zone() {
        let prague = next("0 3 * * *", "Europe/Prague", "2026-01-31T02:00:00Z", 2);
        assert_eq!(prague, ["2026-02-01T02:00:00Z", "2026-02-02T02:00:00Z"]);
        let kathmandu = next("0 3 * * *", "Asia/Kathmandu", "2026-01-31T00:00:00Z", 1);
        assert_eq!(kathmandu, ["2026-01-31T21:15:00Z"]);
        let utc = next("0 3 * * *", "UTC", "2026-01-31T02:59:59.999Z", 1);
        assert_eq!(utc, ["2026-01-31T03:00:00Z"]);
    }

    #[test]
    fn a_fraction_of_a_second_makes_no_difference() {
        let next = next("*/2 * * * * *", "UTC", "2026-01-31T00:00:02.000001Z", 2);
        assert_eq!(next, ["2026-01-31T00:00:04Z", "2026-01-31T00:00:06Z"]);
    }

    #[test]
    fn days_are_found_by_all_notations() {
        let first = |expression| next(expression, "UTC", "2026-02-01T00:00:00Z", 1).remove(0);
        assert_eq!(first("0 0 * * MON"), "2026-02-02T00:00:00Z");
        assert_eq!(first("0 0 * * 7"), "2026-02-08T00:00:00Z");
        assert_eq!(first("0 0 L * *"), "2026-02-28T00:00:00Z");
        assert_eq!(first("0 0 * * 5#2"), "2026-02-13T00:00:00Z");
        assert_eq!(first("0 0 15W * *"), "2026-02-16T00:00:00Z");
        assert_eq!(first("0 0 29 FEB *"), "2028-02-29T00:00:00Z");
        assert_eq!(first("0 0 13 * FRI"), "2026-02-06T00:00:00Z");
    }

    /// 2096 is a leap year, 2100 is none.
    #[test]
    fn rare_days_are_found() {
        let leap_days = next("0 0 29 2 *", "UTC", "2096-01-01T00:00:00Z", 2);
        assert_eq!(leap_days, ["2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"]);
    }

    /// On 29 March 2026 the clocks of Prague go from 2:00 (1:00 UTC) to 3:00.
    #[test]
    fn skipped_time_is_due_when_the_clock_has_been_put_forward() {
        let half_past_two = next("30 2 * * *", "Europe/Prague", "2026-03-28T00:00:00Z", 3);
        assert_eq!(half_past_two, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        let two = next("0 2 * * *", "Europe/Prague", "2026-03-28T12:00:00Z", 2);
        assert_eq!(two, ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
        let several = next("*/20 1-3 * * *", "Europe/Prague", "2026-03-29T00:30:00Z", 4);
        let expected =
            ["2026-03-29T00:40:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z", "2026-03-29T01:40:00Z"];
        assert_eq!(several, expected, "2:00, 2:20, 2:40 and 3:00 are one time");
    }

    /// On 25 October 2026 the clocks of Prague go from 3:00 (1:00 UTC) to 2:00.
    #[test]
    fn repeated_time_is_due_once() {
        let half_past_two = next("30 2 * * *", "Europe/Prague", "2026-10-24T12:00:00Z", 2);
        assert_eq!(half_past_two, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        let between = next("30 2 * * *", "Europe/Prague", "2026-10-25T01:10:00Z", 1);
        assert_eq!(between, ["2026-10-26T01:30:00Z"], "asked while 2:10 is there for the second time");
        let several = next("0 2,3 * * *", "Europe/Prague", "2026-10-24T12:00:00Z", 3);
        assert_eq!(several, ["2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z", "2026-10-26T01:00:00Z"]);
    }

    #[test]
    fn hourly_expression_follows_real_time() {
        let forward = next("30 * * * *", "Europe/Prague", "2026-03-29T00:00:00Z", 3);
        assert_eq!(forward, ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"]);
        let back = next("30 * * * *", "Europe/Prague", "2026-10-25T00:00:00Z", 3);
        assert_eq!(back, ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"]);
        // The clocks of Lord Howe change by half an hour.
        let by_half = next("0 * * * *", "Australia/Lord_Howe", "2026-04-04T14:30:00Z", 2);
        assert_eq!(by_half, ["2026-04-04T15:30:00Z", "2026-04-04T16:30:00Z"]);
    }

    /// Samoa skipped 30 December 2011.
    #[test]
    fn skipped_day_is_due_after_it() {
        let noon = next("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 3);
        assert_eq!(noon, ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"]);
    }

    #[test]
    fn error_names_the_invalid_field() {
        let why = |expression| Cron::new(expression, "UTC").unwrap_err().to_string();
        let fields = "minute, hour, day of the month, month and day of the week";
        assert_eq!(why("* * *"), format!("a cron expression has five fields, {fields}; this one has 3"));
        assert!(why("").ends_with("this one has none"));
        assert!(why("@daily").ends_with("this one has 1"));
        assert!(why("* * * * * * *").ends_with("this one has 7"));
        assert_eq!(
            why("0 25 * * *"),
            "`25` is no hour; write 0 to 23, `*`, or something like `1-5`, `1,3` or `*/10`"
        );
        assert!(why("60 0 * * *").starts_with("`60` is no minute"));
        assert!(why("61 0 0 * * *").starts_with("`61` is no second"));
        assert!(why("0 0 0 * *").starts_with("`0` is no day of the month"));
        assert!(why("0 0 1 13 *").starts_with("`13` is no month"));
        assert!(why("0 0 * * 8").starts_with("`8` is no day of the week"));
        assert!(why("0 5-x * * *").starts_with("`5-x` is no hour"));
        assert!(why("0 ä * * *").starts_with("`ä` is no hour"));
        assert!(why("*/0 * * * *").starts_with("`*/0` is no minute"));
    }

    #[test]
    fn expression_that_is_never_due_is_rejected() {
        for expression in ["0 0 30 2 *", "0 0 31 4,6 *"] {
            assert_eq!(Cron::new(expression, "UTC").unwrap_err(), CronError::Never, "{expression}");
        }
    }

    #[test]
    fn unknown_zones_are_rejected_and_similar_ones_found() {
        assert_eq!(Cron::new("0 0 * * *", "Europe/Pragues").unwrap_err(), CronError::Zone);
        assert_eq!(Cron::new("0 0 * * *", "").unwrap_err(), CronError::Zone);
        assert_eq!(Cron::new("0 0 * * *", "+01:00").unwrap_err(), CronError::Zone);
        assert_eq!(similar_zone("Prague").as_deref(), Some("Europe/Prague"));
        assert_eq!(similar_zone("Europe/Praque").as_deref(), Some("Europe/Prague"));
        assert_eq!(similar_zone("europe/prague").as_deref(), Some("Europe/Prague"));
        assert_eq!(similar_zone("new york").as_deref(), Some("America/New_York"));
        assert_eq!(similar_zone("the moon"), None);
    }
}
