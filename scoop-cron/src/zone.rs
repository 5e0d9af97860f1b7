//! Time zones: the instants of clock readings.

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

    /// The next instant at which the clock shows a due reading. A repeated reading counts the first time only.
    pub(crate) fn next_by_the_clock(&self, expression: &Expression, after: Timestamp) -> Option<Timestamp> {
        let mut reading = self.0.to_datetime(after);
        loop {
            reading = expression.next_after(reading)?;
            let instant = self.first(reading)?;
            if instant > after {
                return Some(instant);
            }
        }
    }

    /// The first instant at which the clock shows this reading. For a skipped reading, the change of the clock.
    fn first(&self, reading: DateTime) -> Option<Timestamp> {
        let ambiguous = self.0.to_ambiguous_timestamp(reading);
        match ambiguous.offset() {
            // With the offset before the change, the reading is at the change or later.
            AmbiguousOffset::Gap { before, .. } => {
                let later =
                    before.to_timestamp(reading).ok()?.checked_add(SignedDuration::from_nanos(1)).ok()?;
                self.0.preceding(later).next().map(|change| change.timestamp())
            }
            _ => ambiguous.earlier().ok(),
        }
    }

    /// The next instant at which the clock shows a due reading, even a repeated one. The search proceeds from one
    /// change of the clock to the next, since the offset is constant between them.
    pub(crate) fn next_in_real_time(&self, expression: &Expression, after: Timestamp) -> Option<Timestamp> {
        let mut from = after;
        let mut next: fn(&Expression, DateTime) -> Option<DateTime> = Expression::next_after;
        loop {
            let offset = self.0.to_offset(from);
            let reading = next(expression, offset.to_datetime(from))?;
            let instant = offset.to_timestamp(reading).ok()?;
            match self.0.following(from).next() {
                Some(change) if change.timestamp() <= instant => {
                    (from, next) = (change.timestamp(), Expression::next_from);
                }
                _ => return Some(instant),
            }
        }
    }
}

/// The most similar name of a zone, for an unknown or misspelled one.
pub fn similar_zone(name: &str) -> Option<String> {
    let name = normalized(name);
    let zones: Vec<_> = TimeZoneDatabase::bundled().available().map(|zone| zone.to_string()).collect();
    let same = |zone: &&String| {
        let zone = normalized(zone);
        zone == name || zone.rsplit('/').next() == Some(&*name)
    };
    let near = |zone: &&String| is_one_letter_off(&normalized(zone), &name);
    zones.iter().find(same).or_else(|| zones.iter().find(near)).cloned()
}

fn normalized(name: &str) -> String {
    name.to_lowercase().replace([' ', '-'], "_")
}

/// Whether the texts differ in one letter: replaced, added or missing.
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

    /// The due instants of some days around a change of clocks, found by reading a clock every minute.
    fn watched(zone: &Zone, expression: &Expression, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
        let matches = |reading: DateTime| expression.next_from(reading) == Some(reading);
        let (mut due, mut latest) = (vec![], zone.0.to_datetime(from - MINUTE));
        let mut now = from;
        while now < to {
            let reading = zone.0.to_datetime(now);
            if expression.is_hourly() {
                due.extend(matches(reading).then_some(now));
            } else if reading > latest {
                // All readings that the clock has not shown before, including skipped ones.
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
    fn next_time_matches_a_clock_read_every_minute() {
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
