//! Deadlines, inherited through the context.
//!
//! There are three, each an element of the context: for the forward path, for the rollback, and for both. A launch may
//! tighten an inherited deadline, but never loosen it. The element keeps the deadlines that it replaced.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::{Context, ContextError, ContextKey, Failure, SleepUntil, timestamp};

/// The part of a run that a deadline limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineKind {
    /// The forward path. A run that misses it rolls back.
    HappyPath,
    /// The rollback, which fails if it misses the deadline.
    Rollback,
    /// Both: the path that the run is on when the deadline passes.
    Absolute,
}

/// The direction in which a run works. It decides which deadlines of the run count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It is not part of a rollback.
    Forward,
    /// It is part of a rollback: its own, or that of an ancestor.
    Backward,
}

impl Direction {
    /// The direction of a run, by whether it is part of a rollback.
    pub const fn backward_if(is_part_of_rollback: bool) -> Self {
        if is_part_of_rollback { Self::Backward } else { Self::Forward }
    }
}

/// A deadline: its instant, its source, and the deadlines that it replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    at: OffsetDateTime,
    /// The instant, in its original notation.
    text: String,
    source: String,
    trace: Vec<Deadline>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    deadline: String,
    source: String,
    #[serde(default)]
    trace: Vec<Value>,
}

impl DeadlineKind {
    /// The key in the context.
    pub const fn key(self) -> &'static str {
        match self {
            Self::HappyPath => "HappyPathDeadlineKey",
            Self::Rollback => "RollbackPathDeadlineKey",
            Self::Absolute => "AbsoluteDeadlineKey",
        }
    }

    /// The keys to read: the reference implementation reads the rollback deadline under another name than it writes.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::HappyPath => &["HappyPathDeadlineKey"],
            Self::Rollback => &["RollbackPathDeadlineKey", "RollbackDeadlineKey"],
            Self::Absolute => &["AbsoluteDeadlineKey"],
        }
    }

    /// Its name for users, and the kind of the failure if it is missed.
    const fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::HappyPath => ("deadline", "MissedHappyPathDeadline"),
            Self::Rollback => ("rollback deadline", "MissedRollbackDeadline"),
            Self::Absolute => ("total deadline", "MissedAbsoluteDeadline"),
        }
    }

    /// The deadlines that apply in this direction, in the order of their reports.
    const fn applicable(direction: Direction) -> [Self; 2] {
        match direction {
            Direction::Forward => [Self::HappyPath, Self::Absolute],
            Direction::Backward => [Self::Rollback, Self::Absolute],
        }
    }
}

/// The keys under which a context has times: those of deadlines, and the end of a delay.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{ContextKey, SleepUntil, time_keys};
///
/// assert!(time_keys().any(|key| key == SleepUntil::KEY));
/// ```
pub fn time_keys() -> impl Iterator<Item = &'static str> {
    let kinds = [DeadlineKind::HappyPath, DeadlineKind::Rollback, DeadlineKind::Absolute];
    kinds.into_iter().flat_map(|kind| kind.keys()).copied().chain([SleepUntil::KEY])
}

impl Deadline {
    /// A deadline set by `source`, with a resolution of microseconds. An instant outside the years 1 to 9999 becomes
    /// the nearest one in that range.
    pub fn new(at: OffsetDateTime, source: impl Into<String>) -> Self {
        let at = timestamp::clamp(at);
        let text = at.format(&Rfc3339).unwrap_or_else(|_| NEVER.into());
        Self { at, text, source: source.into(), trace: vec![] }
    }

    /// The instant.
    pub fn at(&self) -> OffsetDateTime {
        self.at
    }

    /// The source given to [`Deadline::new`].
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The deadlines that it replaced.
    pub fn trace(&self) -> &[Deadline] {
        &self.trace
    }

    /// The earlier of both, with the other in its trace.
    #[must_use]
    pub fn combined(older: Self, newer: Self) -> Self {
        let (mut winner, loser) = if newer.at < older.at { (newer, older) } else { (older, newer) };
        let bare = Self { trace: vec![], ..loser.clone() };
        for other in std::iter::once(bare).chain(loser.trace) {
            if !winner.trace.contains(&other) {
                winner.trace.push(other);
            }
        }
        winner
    }

    fn from_stored(stored: Stored) -> Result<Self, String> {
        let no_time = |why: &dyn Display| format!("`{}` is no point in time: {why}", stored.deadline);
        let at = OffsetDateTime::parse(&stored.deadline, &Rfc3339).map_err(|error| no_time(&error))?;
        let at = timestamp::representable(at).ok_or_else(|| no_time(&"its year is none from 1 to 9999"))?;
        let trace = stored.trace.into_iter().map(Self::from_trace).collect::<Result<_, _>>()?;
        Ok(Self { at, text: stored.deadline, source: stored.source, trace })
    }

    /// An entry of a trace, bare or wrapped in its key.
    fn from_trace(entry: Value) -> Result<Self, String> {
        let bare = match entry {
            Value::Object(fields) if fields.len() == 1 => {
                fields.into_iter().next().map_or(Value::Null, |(_, it)| it)
            }
            bare => bare,
        };
        let stored = serde_json::from_value(bare).map_err(|error| error.to_string())?;
        Self::from_stored(stored)
    }

    fn to_stored(&self, kind: DeadlineKind) -> Stored {
        let wrapped = |it: &Deadline| {
            let mut entry = Map::new();
            entry.insert(kind.key().into(), serde_json::to_value(it.to_stored(kind)).unwrap_or_default());
            Value::Object(entry)
        };
        let trace = self.trace.iter().map(wrapped).collect();
        Stored { deadline: self.text.clone(), source: self.source.clone(), trace }
    }

    fn missed(&self, kind: DeadlineKind) -> Failure {
        let ((words, name), source) = (kind.name(), &self.source);
        Failure::new(name, format!("missed the {words} {}, set by {source}", self.text), source)
    }
}

/// The protocol's notation of a deadline that is never missed.
const NEVER: &str = "9999-12-31T23:59:59.999999Z";

impl Context {
    /// The deadline of this kind, if there is one.
    ///
    /// # Errors
    ///
    /// If the value stored under its key is not a deadline.
    pub fn deadline(&self, kind: DeadlineKind) -> Result<Option<Deadline>, ContextError> {
        let mut found: Option<Deadline> = None;
        for &key in kind.keys() {
            let Some(stored) = self.read::<Stored>(key)? else {
                continue;
            };
            let deadline = Deadline::from_stored(stored).map_err(|why| ContextError::Mismatch {
                key: key.into(),
                expected: std::any::type_name::<Deadline>(),
                source: serde::de::Error::custom(why),
            })?;
            found = Some(match found {
                Some(other) => Deadline::combined(other, deadline),
                None => deadline,
            });
        }
        Ok(found)
    }

    /// Adds a deadline. If there is one already, the earlier one counts.
    ///
    /// # Errors
    ///
    /// If the value stored under its key is not a deadline.
    pub fn tighten(&mut self, kind: DeadlineKind, deadline: Deadline) -> Result<(), ContextError> {
        let combined = match self.deadline(kind)? {
            Some(older) => Deadline::combined(older, deadline),
            None => deadline,
        };
        self.write(kind.key(), &combined.to_stored(kind))
    }

    /// The instants at which a run with this context has to give up its forward path, or its rollback. An unreadable
    /// deadline counts as missed on the forward path, and does not stop a rollback.
    pub fn give_up_at(&self, direction: Direction) -> Vec<OffsetDateTime> {
        let read = |kind| match self.deadline(kind) {
            Ok(deadline) => deadline.map(|deadline| deadline.at),
            Err(_) if direction == Direction::Backward => None,
            Err(_) => Some(OffsetDateTime::UNIX_EPOCH),
        };
        DeadlineKind::applicable(direction).into_iter().filter_map(read).collect()
    }

    /// The failures for missed deadlines of the forward path, or of a rollback: deadlines up to `now`, and after
    /// `since` if that is given.
    pub fn missed_deadlines(
        &self,
        direction: Direction,
        now: OffsetDateTime,
        since: Option<OffsetDateTime>,
        source: &str,
    ) -> Vec<Failure> {
        let missed = |kind: DeadlineKind| match self.deadline(kind) {
            Ok(deadline) => {
                let counts = |it: &Deadline| it.at <= now && since.is_none_or(|since| it.at > since);
                deadline.filter(counts).map(|deadline| deadline.missed(kind))
            }
            Err(_) if direction == Direction::Backward => None,
            Err(error) => Some(Failure::new("ContextMismatch", error.to_string(), source)),
        };
        DeadlineKind::applicable(direction).into_iter().filter_map(missed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> OffsetDateTime {
        OffsetDateTime::parse(text, &Rfc3339).unwrap()
    }

    fn context(text: &str) -> Context {
        serde_json::from_str(text).unwrap()
    }

    const FAR: &str = r#"{"HappyPathDeadlineKey":{"deadline":"9999-12-31T23:59:59.999999Z","source":"root system","trace":[]}}"#;

    #[test]
    fn earlier_deadline_wins_and_keeps_the_other_in_its_trace() {
        let mut context = context(FAR);
        let tighter = Deadline::new(at("2026-06-25T10:31:37.1234567Z"), "root handler");
        context.tighten(DeadlineKind::HappyPath, tighter).unwrap();
        assert_eq!(
            serde_json::to_string(&context).unwrap(),
            r#"{"HappyPathDeadlineKey":{"deadline":"2026-06-25T10:31:37.123456Z","source":"root handler","trace":[{"HappyPathDeadlineKey":{"deadline":"9999-12-31T23:59:59.999999Z","source":"root system","trace":[]}}]}}"#
        );
        let missed = context.missed_deadlines(Direction::Forward, at("2026-06-25T10:31:38Z"), None, "s");
        assert_eq!(missed[0].message, "missed the deadline 2026-06-25T10:31:37.123456Z, set by root handler");
        assert_eq!((missed.len(), &*missed[0].kind), (1, "MissedHappyPathDeadline"));
    }

    #[test]
    fn deadlines_combine_at_any_depth_and_are_never_loosened() {
        let mut context = Context::default();
        for (time, source) in [("12:00", "a"), ("13:00", "b"), ("11:00", "c"), ("11:30", "d"), ("11:00", "e")]
        {
            let deadline = Deadline::new(at(&format!("2026-01-01T{time}:00Z")), source);
            context.tighten(DeadlineKind::Absolute, deadline).unwrap();
        }
        let combined = context.deadline(DeadlineKind::Absolute).unwrap().unwrap();
        let trace: Vec<_> = combined.trace().iter().map(Deadline::source).collect();
        assert_eq!((combined.source(), trace), ("c", vec!["a", "b", "d", "e"]));
        assert!(combined.trace().iter().all(|entry| entry.trace().is_empty()));
    }

    #[test]
    fn both_spellings_and_both_forms_of_a_trace_are_read() {
        let context = context(
            r#"{"RollbackDeadlineKey":{"deadline":"2026-01-01T10:00:00+02:00","source":"a","trace":[{"deadline":"2027-01-01T00:00:00Z","source":"bare","trace":[]}]},
                "RollbackPathDeadlineKey":{"deadline":"2026-01-01T09:00:00Z","source":"b","trace":[{"RollbackPathDeadlineKey":{"deadline":"2027-01-01T00:00:00Z","source":"wrapped","trace":[]}}]}}"#,
        );
        let deadline = context.deadline(DeadlineKind::Rollback).unwrap().unwrap();
        let trace: Vec<_> = deadline.trace().iter().map(Deadline::source).collect();
        assert_eq!((deadline.source(), trace), ("a", vec!["bare", "b", "wrapped"]));
        assert_eq!(context.give_up_at(Direction::Backward), [at("2026-01-01T08:00:00Z")]);
        assert!(context.give_up_at(Direction::Forward).is_empty());
    }

    #[test]
    fn deadline_passed_before_a_rollback_does_not_stop_it() {
        let mut context = Context::default();
        context.tighten(DeadlineKind::Absolute, Deadline::new(at("2026-01-01T00:00:00Z"), "a")).unwrap();
        let now = at("2026-01-01T00:00:10Z");
        let missed = |direction, since: Option<&str>| {
            context.missed_deadlines(direction, now, since.map(at), "s").len()
        };
        assert_eq!(missed(Direction::Forward, None), 1);
        assert_eq!(missed(Direction::Backward, Some("2026-01-01T00:00:01Z")), 0);
        assert_eq!(
            missed(Direction::Backward, Some("2026-01-01T00:00:00Z")),
            0,
            "it had passed at the start"
        );
        assert_eq!(missed(Direction::Backward, Some("2025-12-31T23:59:59Z")), 1);
    }

    #[test]
    fn unreadable_deadline_ends_the_forward_path_by_name() {
        let context = context(r#"{"AbsoluteDeadlineKey":{"deadline":"soon","source":"x"}}"#);
        let missed = context.missed_deadlines(Direction::Forward, at("2026-01-01T00:00:00Z"), None, "s");
        assert_eq!(missed[0].kind, "ContextMismatch");
        assert!(missed[0].message.contains("`AbsoluteDeadlineKey`"), "{}", missed[0].message);
        assert!(
            context.missed_deadlines(Direction::Backward, at("2026-01-01T00:00:00Z"), None, "s").is_empty()
        );
        assert_eq!(context.give_up_at(Direction::Forward), [OffsetDateTime::UNIX_EPOCH], "it has passed");
        assert!(context.give_up_at(Direction::Backward).is_empty());
    }
}
