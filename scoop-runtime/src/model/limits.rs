//! The limits of sagas, as their attributes state them.

use std::fmt;

use scoop_core::Escaped;
use serde::{Serialize, Serializer};
use serde_json::json;

/// The limits of a saga: `#[saga(concurrency = .., serial, rate(..), queue = ..)]`. The
/// [guide](https://docs.rs/crate/scoop-saga/latest/source/docs/limits.md) describes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How many runs all processes together execute at once.
    pub concurrency: Option<Limit<u32>>,
    /// Whether a run counts for the concurrency until its end, and not only while it is executed.
    pub serial: bool,
    /// How many runs all processes together begin within a period.
    pub rate: Option<Limit<Rate>>,
    /// How many runs may wait for a worker when a message is launched from outside.
    pub queue: Option<u32>,
    /// The field or function from which the key of a message comes, if a limit is by key. Empty if all messages have the same key.
    pub by: Option<&'static str>,
}

/// One limit: of a saga, or of each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit<T> {
    /// The limit.
    pub most: T,
    /// Whether the runs of each key count apart. Otherwise all runs of the saga count together.
    pub is_by_key: bool,
}

/// So many runs within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rate {
    /// The number of runs.
    pub runs: u32,
    /// The period in milliseconds.
    pub period_ms: u64,
}

/// The limits of a saga that are in force: the program that started last with it decides. Display them for one line, as the
/// attribute states them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HandlerLimits {
    /// How many runs all processes together execute at once.
    #[serde(flatten, serialize_with = "concurrency")]
    pub concurrency: Option<Limit<u32>>,
    /// Whether a run counts for the concurrency until its end, and not only while it is executed.
    pub serial: bool,
    /// How many runs all processes together begin within a period.
    #[serde(flatten, serialize_with = "rate")]
    pub rate: Option<Limit<Rate>>,
    /// How many runs may wait for a worker when a message is launched from outside.
    pub queue: Option<u32>,
    /// The field or function from which the key of a message comes, if a limit is by key.
    pub by: Option<String>,
}

/// A limit as fields beside the others.
#[expect(clippy::ref_option, reason = "serde wants a reference")]
fn concurrency<S: Serializer>(limit: &Option<Limit<u32>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([
        ("concurrency", json!(limit.map(|limit| limit.most))),
        ("concurrency_by_key", json!(limit.is_some_and(|limit| limit.is_by_key))),
    ])
}

/// The same of a rate.
#[expect(clippy::ref_option, reason = "serde wants a reference")]
fn rate<S: Serializer>(limit: &Option<Limit<Rate>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([
        ("rate", json!(limit.map(|limit| limit.most.runs))),
        ("rate_period_ms", json!(limit.map(|limit| limit.most.period_ms))),
        ("rate_by_key", json!(limit.is_some_and(|limit| limit.is_by_key))),
    ])
}

impl HandlerLimits {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.concurrency.is_none() && self.rate.is_none() && self.queue.is_none()
    }
}

impl fmt::Display for HandlerLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { concurrency, serial, rate, queue, by } = self;
        let has_key = by.is_some();
        let by = Escaped(by.as_deref().unwrap_or_default());
        let concurrency = concurrency.map(|Limit { most, is_by_key }| match (serial, is_by_key) {
            (true, _) if has_key => format!("serial(by = {by})"),
            (true, _) => "serial".to_owned(),
            (false, true) => format!("concurrency({most}, by = {by})"),
            (false, false) => format!("concurrency = {most}"),
        });
        let rate = rate.map(|Limit { most, is_by_key }| match is_by_key {
            true => format!("rate(\"{most}\", by = {by})"),
            false => format!("rate(\"{most}\")"),
        });
        let queue = queue.map(|most| format!("queue = {most}"));
        let all: Vec<_> = [concurrency, rate, queue].into_iter().flatten().collect();
        f.write_str(&all.join(", "))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] =
            [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
        let Self { runs, period_ms } = *self;
        let whole = UNITS.into_iter().find(|(unit, _)| period_ms.is_multiple_of(*unit));
        let (unit, name) = whole.unwrap_or((1, "ms"));
        match period_ms / unit {
            1 => write!(f, "{runs}/{name}"),
            several => write!(f, "{runs}/{several}{name}"),
        }
    }
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self { concurrency: None, serial: false, rate: None, queue: None, by: None };

    /// At most so many runs at once.
    #[must_use]
    pub const fn concurrency(self, most: u32) -> Self {
        Self { concurrency: Some(Limit { most, is_by_key: false }), ..self }
    }

    /// At most so many runs of each key at once, which comes from this field or function.
    #[must_use]
    pub const fn concurrency_by(self, most: u32, by: &'static str) -> Self {
        Self { concurrency: Some(Limit { most, is_by_key: true }), by: Some(by), ..self }
    }

    /// One run at a time, from its beginning to its end.
    #[must_use]
    pub const fn serial(self) -> Self {
        self.serial_by("")
    }

    /// One run of each key at a time, which comes from this field or function, from its beginning to its end.
    #[must_use]
    pub const fn serial_by(self, by: &'static str) -> Self {
        Self { serial: true, ..self.concurrency_by(1, by) }
    }

    /// At most so many runs wait for a worker, or a message is not launched from outside.
    #[must_use]
    pub const fn queue(self, most: u32) -> Self {
        Self { queue: Some(most), ..self }
    }

    /// At most so many runs begin within a period of so many milliseconds.
    #[must_use]
    pub const fn rate(self, runs: u32, period_ms: u64) -> Self {
        Self { rate: Some(Limit { most: Rate { runs, period_ms }, is_by_key: false }), ..self }
    }

    /// At most so many runs of each key, which comes from this field or function, begin within a period of so many milliseconds.
    #[must_use]
    pub const fn rate_by(self, runs: u32, period_ms: u64, by: &'static str) -> Self {
        Self { rate: Some(Limit { most: Rate { runs, period_ms }, is_by_key: true }), by: Some(by), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_as_the_attribute_states_them() {
        let shown = |limits: HandlerLimits| limits.to_string();
        let rate = |runs, period_ms, is_by_key| Some(Limit { most: Rate { runs, period_ms }, is_by_key });
        let (none, by) = (HandlerLimits::default(), Some("customer".to_owned()));
        assert_eq!(shown(none.clone()), "");
        assert!(none.is_none());
        let concurrency = Some(Limit { most: 10, is_by_key: false });
        let all =
            HandlerLimits { concurrency, rate: rate(100, 1_000, false), queue: Some(5), ..none.clone() };
        assert_eq!(shown(all.clone()), "concurrency = 10, rate(\"100/s\"), queue = 5");
        assert!(!all.is_none());
        let concurrency = Some(Limit { most: 1, is_by_key: true });
        let by_key = HandlerLimits { concurrency, rate: rate(5, 600_000, true), by, ..none.clone() };
        assert_eq!(shown(by_key.clone()), "concurrency(1, by = customer), rate(\"5/10m\", by = customer)");
        let serial = HandlerLimits { serial: true, rate: None, ..by_key };
        assert_eq!(shown(serial.clone()), "serial(by = customer)");
        assert_eq!(shown(HandlerLimits { by: None, ..serial }), "serial");
        assert_eq!(shown(HandlerLimits { rate: rate(1, 250, false), ..none }), "rate(\"1/250ms\")");
    }
}
