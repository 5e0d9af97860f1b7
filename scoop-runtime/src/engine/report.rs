//! Reports the decisions of a conclusion to operators, once they are committed.

use scoop_core::Failure;

use super::execution::Execution;
use super::outcome::{Decision, Ended, Placed};
use crate::telemetry;

impl Decision {
    /// Reports it. Call this after the commit.
    pub(super) fn report(&self, execution: &Execution) {
        if let Some(Placed { step, failure }) = &self.began_rollback {
            execution.span.fails(failure);
            let gave_up = GaveUp::of(failure);
            gave_up.report(execution, step, failure);
            if !gave_up.cancelled && !gave_up.missed_deadline {
                let at = execution.at(step);
                let report = if at.is_root() { telemetry::failed } else { telemetry::failed_below };
                report(at, failure);
            }
        }
        match &self.ended {
            Some(Ended::RolledBack { at: Placed { step, failure }, rollback_requested }) => {
                // If there was nothing to undo, no part of a rollback has run.
                let step = self.began_rollback.as_ref().map_or(step, |began| &began.step);
                telemetry::rolled_back(execution.at(step), failure, *rollback_requested);
            }
            Some(Ended::RollbackFailed { at: Placed { step, failure }, is_again }) => {
                execution.span.fails(failure);
                GaveUp::of(failure).report(execution, step, failure);
                telemetry::rollback_failed(execution.at(step), failure, *is_again);
            }
            None => {}
        }
        if self.ended.is_some() {
            execution.span.ends_as(self.name());
        }
    }
}

/// Why a run gave up, if it did. Children that gave up as well report that themselves.
#[derive(Default)]
struct GaveUp {
    cancelled: bool,
    missed_deadline: bool,
}

impl GaveUp {
    fn of(failure: &Failure) -> Self {
        if failure.kind != "GaveUpException" {
            return Self::default();
        }
        let is = |kind: fn(&str) -> bool| failure.causes.iter().any(|cause| kind(&cause.kind));
        Self {
            cancelled: is(|kind| kind.ends_with("CancellationRequestedException")),
            missed_deadline: is(|kind| kind.starts_with("Missed") && kind.ends_with("Deadline")),
        }
    }

    fn report(&self, execution: &Execution, step: &str, failure: &Failure) {
        if self.cancelled {
            telemetry::cancelled(execution.at(step), failure);
        }
        if self.missed_deadline {
            let at = execution.at(step);
            let report =
                if at.is_root() { telemetry::deadline_missed } else { telemetry::deadline_missed_below };
            report(at, failure);
        }
    }
}
