//! Repairs of failed rollbacks and of stuck runs: what an operator sees, and what follows from a decision.
//!
//! A decision locks the hierarchy, then the rows of the lineage, root first (`run_lock_lineage.sql`): in the order of a
//! settlement, which locks its own row before those of its failed children. It raises the epoch of the run above that waits
//! already (`run_repair.sql`), since a wake-up under way has a snapshot from before. The model `tests/model/repair.rs` finds
//! this fault. A decision is refused while a repair of the run or of one below is in progress, and until the run above has
//! recorded the failure.

mod decision;

use std::fmt;
use std::time::SystemTime;

use scoop_core::{Escaped, Failure, Lineage};
use uuid::Uuid;

use crate::util::stored_time::StoredTime;
use crate::{HierarchyId, ListCursor, RunId, RunPhase, RunRequest, RuntimeError};

pub(crate) use self::decision::{ConcernedRun, Decision, FailedRun, Refusal, RepairAction};
#[cfg(feature = "in-memory")]
pub(crate) use self::decision::{OperatorEvent, RepairedRun};

/// The stored kind of an intervention that sends a run the signal that it awaits.
pub(crate) const SIGNAL: &str = "signal";

/// The response to a repair request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairAnswer {
    /// The intervention is recorded, and the run continues, or its ancestors do.
    Accepted,
    /// The run has no failed rollback, or it was settled before. Nothing happens.
    NotFailed,
    /// A repair of this run or of a descendant is in progress, or its parent has not yet recorded the failure.
    /// Nothing happens; repeat the request later.
    StillRunning,
    /// The rollback of the run failed because of descendants. Repair those first; the run then continues
    /// automatically. Only a retry is refused so: the run can be skipped or resolved. Nothing happens.
    FailedBelow,
    /// The run has not failed, but is [stuck](crate::Scoop::stuck_runs): it can only be retried. Nothing happens.
    ///
    /// If its code will never come back, cancel it, and start a program that has empty steps in place of those that its
    /// reason names: it rolls back then.
    Stuck,
}

impl RepairAnswer {
    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::NotFailed => "not failed",
            Self::StillRunning => "still running",
            Self::FailedBelow => "failed below",
            Self::Stuck => "stuck",
        }
    }
}

impl fmt::Display for RepairAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "the decision is recorded, and the run or the rollback goes on",
            Self::NotFailed => "the run has no failed rollback, or it was settled before",
            Self::StillRunning => {
                "a repair is in progress, or its parent has not recorded the failure: repeat it later"
            }
            Self::FailedBelow => {
                "its rollback failed because of runs below it: repair those first, and it goes on"
            }
            Self::Stuck => "the run has not failed, but is stuck: it can only be retried",
        })
    }
}

impl TryFrom<Refusal> for RepairAnswer {
    type Error = RuntimeError;

    fn try_from(refusal: Refusal) -> Result<Self, RuntimeError> {
        Ok(match refusal {
            Refusal::NotFailed => Self::NotFailed,
            Refusal::Busy => Self::StillRunning,
            Refusal::FailedBelow => Self::FailedBelow,
            Refusal::Stuck => Self::Stuck,
            Refusal::Damaged(run, damage) => {
                return Err(RuntimeError::DamagedRollback { run: run.into(), damage: damage.as_str() });
            }
        })
    }
}

/// A run whose rollback failed. It rests until an operator decides about it, or about those of [`failed_below`](Self::failed_below).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedRollback {
    /// Its lineage: the ids of its ancestors and its own id.
    pub lineage: Lineage,
    /// The saga.
    pub handler: String,
    /// The topic of the message.
    pub topic: String,
    /// The message.
    pub message_id: Uuid,
    /// The part of its rollback that failed.
    pub step: String,
    /// The failure. Earlier ones, before a repair, are among its events.
    pub failure: Failure,
    /// The time of the failure.
    pub at: SystemTime,
    /// The failed runs below it because of which it failed, and that an operator has to decide about first; ten at most. It continues
    /// when those are settled. [`resolve`](crate::Scoop::resolve) also settles them; [`skip`](crate::Scoop::skip) leaves them
    /// failed, and the run stops waiting.
    pub failed_below: Vec<RunId>,
    /// `at` as stored.
    pub(crate) stored_at: StoredTime,
}

/// A run that does not continue by itself: no living program can continue it, or the results of too many attempts are
/// unknown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckRun {
    /// Its lineage: the ids of its ancestors and its own id.
    pub lineage: Lineage,
    /// Its state: [`RunPhase::Stuck`], or another one if no living worker has its saga. Then it is due, and
    /// [`Scoop::retry`](crate::Scoop::retry) has no effect.
    pub phase: RunPhase,
    /// The saga.
    pub handler: String,
    /// The topic of the message.
    pub topic: String,
    /// The message.
    pub message_id: Uuid,
    /// The latest completed step, if there is one.
    pub step: Option<String>,
    /// Whether it is rolling back.
    pub rolling_back: bool,
    /// The reason for which it is stuck.
    pub reason: String,
    /// The time since which it is stuck.
    pub since: SystemTime,
    /// Whether it was cancelled, or missed a deadline. It gives up when it can continue; until then all its ancestors
    /// wait.
    pub giving_up: bool,
    /// Whether a cancellation makes it give up: it is not part of a rollback, and does not give up already.
    pub can_give_up: bool,
    /// Whether only [`Scoop::retry`](crate::Scoop::retry) makes it continue: the results of several attempts in a row are
    /// unknown. Any other stuck run continues when a program that can continue it starts, too.
    pub needs_retry: bool,
    /// `since` as stored.
    pub(crate) stored_since: StoredTime,
}

/// An intervention of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Intervention {
    /// The run.
    pub run: RunId,
    /// Its saga.
    pub handler: String,
    /// The part of its rollback that had failed; `None` if the run was stuck, or awaited a signal.
    pub step: Option<String>,
    /// The kind: `retry`, `skip`, `resolve` or `signal`.
    pub kind: String,
    /// The reason.
    pub note: Option<String>,
    /// The source of the request.
    pub source: String,
    /// The time of the request.
    pub at: SystemTime,
}

impl fmt::Display for Intervention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", Escaped(&self.kind), Escaped(&self.source))?;
        self.note.as_ref().map_or(Ok(()), |note| write!(f, ": {}", Escaped(note)))
    }
}

impl FailedRollback {
    /// The id of the run, for [`Scoop::retry`](crate::Scoop::retry), [`Scoop::skip`](crate::Scoop::skip) and
    /// [`Scoop::resolve`](crate::Scoop::resolve).
    pub fn id(&self) -> RunId {
        self.lineage.id().into()
    }

    /// The decisions to offer about it: all if it failed by itself, otherwise none. `skip` and `resolve` are also accepted about a
    /// run above a failed one, which leaves that run failed or settles it with it.
    pub fn requests(&self) -> impl Iterator<Item = RunRequest> {
        let failed_by_itself = self.failed_below.is_empty();
        RunRequest::REPAIRS.into_iter().filter(move |_| failed_by_itself)
    }

    /// Its place in the list, from which [another page](crate::ListRequest::after_cursor) begins.
    pub fn cursor(&self) -> ListCursor {
        ListCursor((self.stored_at, self.lineage.id()))
    }

    /// The hierarchy that it belongs to.
    pub fn hierarchy(&self) -> HierarchyId {
        self.lineage.root_id().into()
    }
}

/// The reason for which a run is stuck if no living program has its saga.
pub(crate) fn no_program(saga: &str) -> String {
    format!(
        "no living program has saga `{saga}`; start one that has it, or if the saga was renamed, write \
         `#[saga(was = \"{saga}\")]`"
    )
}

impl StuckRun {
    /// The id of the run, for [`Scoop::retry`](crate::Scoop::retry).
    pub fn id(&self) -> RunId {
        self.lineage.id().into()
    }

    /// The requests of an operator that can have an effect on it.
    pub fn requests(&self) -> impl Iterator<Item = RunRequest> {
        self.phase.requests_if(self.can_give_up)
    }

    /// Its place in the list, from which [another page](crate::ListRequest::after_cursor) begins.
    pub fn cursor(&self) -> ListCursor {
        ListCursor((self.stored_since, self.lineage.id()))
    }

    /// The hierarchy that it belongs to.
    pub fn hierarchy(&self) -> HierarchyId {
        self.lineage.root_id().into()
    }
}
