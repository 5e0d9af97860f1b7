//! Time zones: which instants the readings of a clock are.

use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, civil::DateTime};

use crate::expression::Expression;

/// A time zone of the IANA database.
#[derive(Clone, Debug)]
pub(crate) struct Zone(TimeZone);

impl Zone {
    pub(crate) fn named(name: &str) -> Option<Self> {
        let zone = TimeZoneDatabase::bundled().get(name).ok()?;
        (zone.iana_name() == Some(name)).then_some(Self(zone))
    }

    /// The next instant at which the clock shows what is due. Each reading counts once, so that one
    /// which exists twice is over after the first time.
    pub(crate) fn next_by_the_clock(&self, expression: &Expression, after: Timestamp) -> Option<Timestamp> {
        let mut reading = self.0.to_datetime(after);
        loop {
            reading = expression.next(reading, false)?;
            let instant = self.first(reading)?;
            if instant > after {
                return Some(instant);
            }
        }
    }

    /// When the clock first shows this, or the first after it that it does show.
    fn first(&self, reading: DateTime) -> Option<Timestamp> {
        let ambiguous = self.0.to_ambiguous_timestamp(reading);
        match ambiguous.offset() {
            // By the clock as it was before, the reading is at the moment when it was put, or later.
            AmbiguousOffset::Gap { before, .. } => {
                let later =
                    before.to_timestamp(reading).ok()?.checked_add(SignedDuration::from_nanos(1)).ok()?;
                self.0.preceding(later).next().map(|change| change.timestamp())
            }
            _ => ambiguous.earlier().ok(),
        }
    }

    /// The next instant at which the clock shows what is due, however often it has before. Goes
    /// from one change of the clock to the next, as between two of them it runs as time does.
    pub(crate) fn next_in_real_time(&self, expression: &Expression, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut inclusive) = (after, false);
        loop {
            let offset = self.0.to_offset(from);
            let reading = expression.next(offset.to_datetime(from), inclusive)?;
            let instant = offset.to_timestamp(reading).ok()?;
            match self.0.following(from).next() {
                Some(change) if change.timestamp() <= instant => {
                    (from, inclusive) = (change.timestamp(), true);
                }
                _ => return Some(instant),
            }
        }
    }
}

/// The zone that somebody may have meant who wrote this.
pub fn similar_zone(name: &str) -> Option<String> {
    let name = plain(name);
    let zones: Vec<_> = TimeZoneDatabase::bundled().available().map(|zone| zone.to_string()).collect();
    let same = |zone: &&String| {
        let zone = plain(zone);
        zone == name || zone.rsplit('/').next() == Some(&*name)
    };
    let near = |zone: &&String| is_one_letter_off(&plain(zone), &name);
    zones.iter().find(same).or_else(|| zones.iter().find(near)).cloned()
}

fn plain(name: &str) -> String {
    name.to_lowercase().replace([' ', '-'], "_")
}

/// Whether one letter makes the difference: another, one more, or one less.
fn is_one_letter_off(one: &str, other: &str) -> bool {
    let start = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let (one, other): (Vec<_>, Vec<_>) =
        (one.chars().skip(start).collect(), other.chars().skip(start).collect());
    match one.len().abs_diff(other.len()) {
        0 => one.get(1..) == other.get(1..),
        1 => one.get(1..) == Some(&other) || other.get(1..) == Some(&one),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;

    const MINUTE: SignedDuration = SignedDuration::from_secs(60);

    /// The instants of some days around a change of clocks at which the expression is due: found by
    /// looking at a clock every minute.
    fn watched(zone: &Zone, expression: &Expression, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
        let matches = |reading: DateTime| expression.next(reading, true) == Some(reading);
        let (mut due, mut latest) = (vec![], zone.0.to_datetime(from - MINUTE));
        let mut now = from;
        while now < to {
            let reading = zone.0.to_datetime(now);
            if expression.is_hourly() {
                due.extend(matches(reading).then_some(now));
            } else if reading > latest {
                // All that the clock has not shown before, be it that it leaps over some.
                let mut shown = latest.saturating_add(1.minute());
                let mut any = false;
                while shown <= reading {
                    any |= matches(shown);
                    shown = shown.saturating_add(1.minute());
                }
                due.extend(any.then_some(now));
            }
            latest = latest.max(reading);
            now += MINUTE;
        }
        due
    }

    #[test]
    fn the_next_time_is_the_one_that_a_clock_shows_next() {
        let changes = [
            ("Europe/Prague", "2026-03-29T01:00:00Z"),
            ("Europe/Prague", "2026-10-25T01:00:00Z"),
            ("America/New_York", "2026-03-08T07:00:00Z"),
            ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
            ("Pacific/Apia", "2011-12-30T10:00:00Z"),
            ("Asia/Kolkata", "2026-03-29T01:00:00Z"),
        ];
        let expressions = [
            "30 2 * * *",
            "0 0 * * *",
            "*/7 1-3 * * *",
            "0 2,3,14 * * *",
            "*/20 * * * *",
            "45 * * * SUN",
            "0 */2 * * *",
        ];
        let days = SignedDuration::from_hours(30);
        for (name, change) in changes {
            let (zone, change) = (Zone::named(name).unwrap(), change.parse::<Timestamp>().unwrap());
            for expression in expressions {
                let parsed = Expression::parse(expression).unwrap();
                let watched = watched(&zone, &parsed, change - days, change + days);
                let mut asked = change - days;
                while asked < change + days {
                    let next = match parsed.is_hourly() {
                        true => zone.next_in_real_time(&parsed, asked),
                        false => zone.next_by_the_clock(&parsed, asked),
                    };
                    let seen = watched.iter().find(|time| **time > asked).copied();
                    let next = next.filter(|time| *time < change + days);
                    assert_eq!(next, seen, "{expression} in {name} after {asked}");
                    asked += 11 * MINUTE;
                }
            }
        }
    }
}
