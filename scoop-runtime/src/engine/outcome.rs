//! Decisions of a conclusion that are reported to operators, once they are committed.

use scoop_core::{Conclusion, Event, EventKind, Failure, Fate, Path, Run};

pub(super) struct Decision {
    /// The failure that started the rollback, if this conclusion did.
    pub(super) began_rollback: Option<Placed>,
    pub(super) ended: Option<Ended>,
}

/// A failure, and the step or the part of the rollback in which it arose.
pub(super) struct Placed {
    pub(super) step: String,
    pub(super) failure: Failure,
}

pub(super) enum Ended {
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
