//! What is left to do once a conclusion is committed.

use scoop_core::{Conclusion, Context, Fate, Run, SignalKey, Wait};
use serde_json::Value;

use crate::engine::outcome::Decision;
use crate::store::Settlement;

/// The part of a conclusion that is needed after it has been written.
pub(in crate::engine) struct AfterCommit {
    /// The state of the run, if it continues.
    pub(super) run: Option<Run>,
    pub(super) rolling_back: bool,
    pub(super) context: Context,
    pub(super) definition: Option<i32>,
    pub(super) outcome: Option<Box<Decision>>,
    pub(super) topics: Vec<String>,
    pub(super) signals: Vec<SignalKey>,
    pub(super) as_new: Option<Value>,
    /// The wait, if strategies have to decide before the run continues.
    pub(super) wait: Option<Wait>,
}

impl AfterCommit {
    pub(in crate::engine) fn of(before: &Run, conclusion: &Conclusion) -> Self {
        let context = conclusion.context().cloned().unwrap_or_default();
        let outcome = Decision::of(before, conclusion);
        let topics = conclusion.emissions.iter().map(|emission| emission.topic.to_string()).collect();
        let (run, rolling_back) = match &conclusion.fate {
            Fate::GoesOn(run) => (Some(run.clone()), run.is_backward()),
            Fate::Committed => (None, false),
            Fate::RolledBack { .. } | Fate::RollbackFailed { .. } => (None, true),
        };
        let as_new = conclusion.as_new.as_ref().map(|next| next.payload.clone());
        let wait = conclusion.wait.clone().filter(Wait::is_undecided);
        Self { run, rolling_back, context, definition: None, outcome, topics, signals: vec![], as_new, wait }
    }

    /// Adds the facts that only the settlement has.
    pub(in crate::engine) fn with(self, settlement: &Settlement) -> Self {
        Self { definition: settlement.definition(), signals: settlement.to_deliver(), ..self }
    }
}
