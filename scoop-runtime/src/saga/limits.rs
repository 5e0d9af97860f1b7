//! The limits of sagas, as their attributes state them.

/// The limits of a saga: `#[saga(concurrency = ..)]`. The [guide](https://docs.rs/scoop-saga/latest/scoop/guide/limits/index.html)
/// describes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How many runs of the saga all processes together execute at once, at most.
    pub concurrency: Option<u32>,
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self { concurrency: None };

    /// At most so many runs at once.
    #[must_use]
    pub const fn concurrency(self, most: u32) -> Self {
        Self { concurrency: Some(most) }
    }
}
