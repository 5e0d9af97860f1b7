//! The step whose code runs.

use std::fmt;

use scoop_core::Escaped;

use crate::RunId;

/// A step, or a part of a rollback, whose code runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningStep {
    /// The saga.
    pub saga: String,
    /// The name under which the call is recorded.
    pub step: String,
    /// The run.
    pub run: RunId,
}

impl fmt::Display for RunningStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { saga, step, run } = self;
        write!(f, "step `{}` of saga `{}`, run {run}", Escaped(step), Escaped(saga))
    }
}
