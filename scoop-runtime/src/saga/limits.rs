//! The limits of sagas, as their attributes state them.

/// The limits of a saga: `#[saga(concurrency = .., rate(..), queue = ..)]`. The
/// [guide](https://docs.rs/scoop-saga/latest/scoop/guide/limits/index.html) describes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How many runs all processes together execute at once.
    pub concurrency: Option<Limit<u32>>,
    /// How many runs all processes together begin within a period.
    pub rate: Option<Limit<Rate>>,
    /// How many runs may wait for a worker when a message is launched from outside.
    pub queue: Option<u32>,
    /// The field or function from which the key of a message comes, if a limit is by key.
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

impl Limits {
    /// No limits.
    pub const NONE: Self = Self { concurrency: None, rate: None, queue: None, by: None };

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
