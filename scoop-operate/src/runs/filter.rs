//! Which runs a list has, and how much of it is read at a time.

use std::collections::BTreeSet;

use scoop_core::Failure;
use scoop_runtime::RunPhase;
use time::OffsetDateTime;

use super::found::FieldFilter;
use super::{RunSummary, WaitKind};

/// The runs that a list has.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunFilter {
    pub(crate) handler: Option<String>,
    pub(crate) topic: Option<String>,
    /// In one of these; in any if there is none.
    pub(crate) phases: BTreeSet<RunPhase>,
    /// They came into their phase at this time or later,
    pub(crate) since: Option<OffsetDateTime>,
    /// and before this time.
    pub(crate) until: Option<OffsetDateTime>,
    pub(crate) code: Option<String>,
    /// Waiting for one of these; for anything or nothing if there is none.
    pub(crate) waits: BTreeSet<WaitKind>,
    pub(crate) depth: Depth,
    /// The fields by which they are found, all of them.
    pub(crate) fields: Vec<FieldFilter>,
}

/// The part of each hierarchy that a list has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Depth {
    #[default]
    All,
    /// Only the runs of the message that started the hierarchy.
    Roots,
}

/// How much a page may have, and how much may be read for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageSize {
    pub(crate) runs: usize,
    /// Bounds the cost of a filter that no index serves.
    pub(crate) reads: usize,
}

/// A part of a list, and the place where the next part begins, if there may be one.
#[derive(Debug)]
pub(crate) struct Part<P> {
    pub(crate) runs: Vec<RunSummary>,
    pub(crate) next: Option<P>,
}

impl<P> Part<P> {
    /// The part that was read with one run more than the page has. `floor` is the last place that was read, if the
    /// reading ended before the list did.
    pub(crate) fn new(mut runs: Vec<(P, RunSummary)>, page: PageSize, floor: Option<P>) -> Self {
        let more = runs.len() > page.runs;
        runs.truncate(page.runs);
        let mut shown = Vec::with_capacity(runs.len());
        let mut last = None;
        for (position, run) in runs {
            last = Some(position);
            shown.push(run);
        }
        Self { runs: shown, next: if more { last } else { floor } }
    }
}

impl RunFilter {
    /// Whether unfinished runs can be in the list.
    pub(crate) fn has_unfinished(&self) -> bool {
        let of_phases = self.phases.is_empty() || self.phases.iter().any(|phase| !phase.is_finished());
        of_phases
            && (self.waits.is_empty() || self.waits.iter().any(|wait| wait.row_states().next().is_some()))
    }

    /// The kinds of ends that the finished runs of the list have.
    pub(crate) fn ends(&self) -> Vec<RunPhase> {
        let ends = RunPhase::ALL.into_iter().filter(|phase| phase.is_finished());
        let asked = ends.filter(|end| self.admits_phase(*end) && self.waits.is_empty());
        // What has committed has no failure.
        asked.filter(|end| self.code.is_none() || *end != RunPhase::Committed).collect()
    }

    /// Whether runs in this phase are in the list.
    pub(crate) fn admits_phase(&self, phase: RunPhase) -> bool {
        self.phases.is_empty() || self.phases.contains(&phase)
    }

    /// Whether few of the runs that are read may be in the list.
    pub(crate) fn is_selective(&self) -> bool {
        self.topic.is_some()
            || self.code.is_some()
            || !self.phases.is_empty()
            || !self.waits.is_empty()
            || self.since.is_some()
            || self.until.is_some()
            || self.depth == Depth::Roots
    }

    /// Whether one of these failures of a run, or of their causes, has the code that is asked for.
    pub(crate) fn admits_failures<'a>(&self, mut failures: impl Iterator<Item = &'a Failure>) -> bool {
        self.code.as_deref().is_none_or(|code| failures.any(|failure| has_code(failure, code)))
    }
}

/// Whether a failure, or one of its causes, has this code.
fn has_code(failure: &Failure, code: &str) -> bool {
    failure.kind == code || failure.causes.iter().any(|cause| has_code(cause, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_for_ended_runs_reads_no_unfinished_ones() {
        let phases = BTreeSet::from([RunPhase::Committed]);
        let filter = RunFilter { phases, ..RunFilter::default() };
        assert!(!filter.has_unfinished());
        assert_eq!(filter.ends(), [RunPhase::Committed]);
        let filter = RunFilter { code: Some("out-of-stock".into()), ..RunFilter::default() };
        assert_eq!(filter.ends(), [RunPhase::RolledBack]);
        let filter = RunFilter { waits: [WaitKind::Children].into(), ..RunFilter::default() };
        assert!(filter.has_unfinished() && filter.ends().is_empty());
        let filter = RunFilter { phases: [RunPhase::RollbackFailed].into(), ..RunFilter::default() };
        assert!(filter.has_unfinished() && filter.ends().is_empty());
        let filter = RunFilter { waits: [WaitKind::Operator].into(), ..RunFilter::default() };
        assert!(filter.has_unfinished() && filter.ends().is_empty());
    }

    #[test]
    fn code_of_a_cause_is_found() {
        let cause = Failure::new("out-of-stock", "none left", "stock");
        let failure = Failure::new("ChildRolledBackException", "", "orders").caused_by([cause]);
        assert!(has_code(&failure, "out-of-stock") && !has_code(&failure, "out"));
    }
}
