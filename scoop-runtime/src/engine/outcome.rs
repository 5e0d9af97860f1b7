//! Decisions of a conclusion that are reported to operators, once they are committed.

use scoop_core::{Conclusion, Event, EventKind, Failure, Fate, Path, Run};

use super::execution::Execution;
use crate::telemetry;

pub(super) struct Decision {
    /// The failure that started the rollback, if this conclusion did.
    began_rollback: Option<Placed>,
    ended: Option<Ended>,
}

/// A failure, and the step or the part of the rollback in which it arose.
struct Placed {
    step: String,
    failure: Failure,
}

enum Ended {
    RolledBack { at: Placed, rollback_requested: bool },
    RollbackFailed { at: Placed, is_again: bool },
}

impl Decision {
    /// The decision of this conclusion for `before`; `None` unless the run fails or its rollback ends.
    pub(super) fn of(before: &Run, conclusion: &Conclusion) -> Option<Box<Self>> {
        let ended = match &conclusion.fate {
            Fate::RolledBack { cause, rollback_requested } => {
                let at = Placed::new(newest(conclusion, EventKind::RolledBack), cause);
                Some(Ended::RolledBack { at, rollback_requested: *rollback_requested })
            }
            Fate::RollbackFailed { failure, .. } => {
                let at = Placed::new(newest(conclusion, EventKind::RollbackFailed), failure);
                let is_again = matches!(before.path, Path::Backward { failed_before: true, .. });
                Some(Ended::RollbackFailed { at, is_again })
            }
            Fate::GoesOn(run) if run.is_backward() => None,
            Fate::GoesOn(_) | Fate::Committed => return None,
        };
        let began_rollback = newest(conclusion, EventKind::RollingBack).filter(|_| !before.is_backward());
        let began_rollback =
            began_rollback.and_then(|event| Some(Placed::new(Some(event), event.exception.as_ref()?)));
        (began_rollback.is_some() || ended.is_some()).then(|| Box::new(Self { began_rollback, ended }))
    }

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

    pub(super) fn kind(&self) -> EventKind {
        match &self.ended {
            Some(Ended::RolledBack { .. }) => EventKind::RolledBack,
            Some(Ended::RollbackFailed { .. }) => EventKind::RollbackFailed,
            None => EventKind::RollingBack,
        }
    }

    /// The name of the event that reports its newest decision.
    pub(super) fn name(&self) -> &'static str {
        match &self.ended {
            Some(Ended::RolledBack { .. }) => "rolled_back",
            Some(Ended::RollbackFailed { .. }) => "rollback_failed",
            None => "failed",
        }
    }
}

impl Placed {
    fn new(event: Option<&Event>, failure: &Failure) -> Self {
        let step = event.and_then(|event| event.step.clone()).unwrap_or_default();
        Self { step, failure: failure.clone() }
    }
}

fn newest(conclusion: &Conclusion, kind: EventKind) -> Option<&Event> {
    conclusion.events.iter().rev().find(|event| event.kind == kind)
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
