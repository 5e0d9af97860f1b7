//! The limits of sagas, as their attributes state them.

/// The limits of a saga: `#[saga(concurrency = ..)]`. The [guide](https://docs.rs/scoop-saga/latest/scoop/guide/limits/index.html)
/// describes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How many runs of the saga all processes together execute at once, at most; with `by`, of each key.
    pub concurrency: Option<u32>,
    /// The field or function from which the key of a message comes. Without it all runs of the saga count together.
    pub by: Option<&'static str>,
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self { concurrency: None, by: None };

    /// At most so many runs at once.
    #[must_use]
    pub const fn concurrency(self, most: u32) -> Self {
        Self { concurrency: Some(most), ..self }
    }

    /// At most so many runs of each key at once, which comes from this field or function.
    #[must_use]
    pub const fn concurrency_by(self, most: u32, by: &'static str) -> Self {
        Self { concurrency: Some(most), by: Some(by) }
    }
}
