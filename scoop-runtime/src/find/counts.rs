//! Counts of runs by saga and state.

#[cfg(feature = "in-memory")]
use std::collections::BTreeMap;
use std::time::SystemTime;

use scoop_core::RecordedStep;

use super::RunPhase;

/// The number of runs of a saga in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunCount {
    /// The saga.
    pub handler: String,
    /// The state.
    pub phase: RunPhase,
    /// The number, or a part of it.
    pub count: usize,
    /// Whether there are perhaps more: counting stopped at a limit.
    pub is_capped: bool,
    /// The time since which the longest one of those counted is in that state; `None` for ends.
    pub oldest: Option<SystemTime>,
}

/// The number of unfinished runs of a saga that have come to the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunPosition {
    /// The saga.
    pub handler: String,
    /// The topic.
    pub topic: String,
    /// The newest completed step of their execution; `None` before the first one, and in a rollback.
    pub step: Option<String>,
    /// The step that they have chosen to run next; `None` for the one that follows.
    pub jump: Option<String>,
    /// The steps of the definition under which `step` was completed; empty without that.
    pub steps: Vec<RecordedStep>,
    /// The name of the signal that they await.
    pub awaits: Option<String>,
    /// The number, or a part of it.
    pub count: usize,
    /// Whether there are perhaps more: counting stopped at a limit.
    pub is_capped: bool,
}

/// Up to how many runs are counted, and of how many sagas; by default all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountLimits {
    /// Of each saga in a state.
    pub(crate) runs: Option<usize>,
    /// In each state, those first whose names come first.
    pub(crate) sagas: Option<usize>,
}

/// Counts of runs, and whether no saga is left out.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) counts: Vec<RunCount>,
    pub(crate) is_complete: bool,
}

impl Counted {
    /// The counts of the first sagas in each state.
    #[cfg(feature = "in-memory")]
    pub(crate) fn first(mut counts: Vec<RunCount>, sagas: Option<usize>) -> Self {
        let mut of_state = BTreeMap::<_, usize>::new();
        counts.retain(|count| {
            let nth = of_state.entry(count.phase.name()).or_default();
            *nth += 1;
            sagas.is_none_or(|sagas| *nth <= sagas)
        });
        let is_complete = sagas.is_none_or(|sagas| of_state.values().all(|all| *all < sagas));
        Self { counts, is_complete }
    }
}

impl RunCount {
    pub(crate) fn new(handler: String, phase: RunPhase, count: usize) -> Self {
        Self { handler, phase, count, is_capped: false, oldest: None }
    }

    /// Counts one more, up to this limit.
    #[cfg(feature = "in-memory")]
    pub(crate) fn add_one(&mut self, limit: Option<usize>) {
        self.count += 1;
        if let Some(limit) = limit.filter(|limit| self.count >= *limit) {
            (self.count, self.is_capped) = (limit, true);
        }
    }
}

/// Counts of runs by saga and state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunCounts {
    /// Unfinished runs, and those whose [rollback failed](RunPhase::RollbackFailed) until an operator has settled that. Each
    /// counts in the state that lists of runs have.
    pub unfinished: Vec<RunCount>,
    /// The ends of runs since [`since`](Self::since): committed or rolled back. A run that was undone after its commit
    /// counts with both.
    pub finished: Vec<RunCount>,
    /// The time since which ends are counted, by the clock of the database.
    pub since: SystemTime,
    /// The time at which they were counted, by the clock of the database.
    pub read_at: SystemTime,
    /// Whether the runs of all sagas are counted, and not only those of [so many](crate::CountRuns::sagas).
    pub is_complete: bool,
}

impl RunCounts {
    /// The unfinished runs in this state, or those whose rollback failed, of all sagas; a part of them if one of the counts is
    /// capped.
    pub fn unfinished_in(&self, phase: RunPhase) -> usize {
        self.unfinished.iter().filter(|count| count.phase == phase).map(|count| count.count).sum()
    }

    /// The ends of this kind per second, of all sagas, in the time that is counted.
    pub fn per_second(&self, phase: RunPhase) -> f64 {
        let ended: usize = self.finished.iter().filter(|count| count.phase == phase).map(|it| it.count).sum();
        let seconds = self.read_at.duration_since(self.since).map_or(0.0, |time| time.as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let ended = ended as f64;
        if seconds > 0.0 { ended / seconds } else { 0.0 }
    }
}
