//! Time zones: which instants the readings of a clock are.

use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, civil::DateTime};

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
            // By the clock as it was before, the reading is later than the moment when it was put.
            AmbiguousOffset::Gap { before, .. } => {
                let put_forward = before.to_timestamp(reading).ok()?;
                self.0.preceding(put_forward).next().map(|transition| transition.timestamp())
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
