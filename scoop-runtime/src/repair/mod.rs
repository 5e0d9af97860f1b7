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

use scoop_core::Escaped;
use serde::Serialize;

use crate::RunId;
use crate::model::json;

use self::decision::Damage;
pub use self::decision::RepairAction;
pub(crate) use self::decision::{ConcernedRun, Decision, FailedRun, Refusal};
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
    /// The run has not failed, but is stuck (`operate().failures().stuck`): it can only be retried. Nothing happens.
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

/// The record of a failed rollback is damaged. So neither can its run be repaired, nor a run whose repair concerns it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the failed rollback of run {run} cannot be repaired: {}; correct its events in `message_event`, then repeat the request",
    damage.as_str()
)]
pub struct DamagedRollback {
    run: RunId,
    damage: Damage,
}

impl TryFrom<Refusal> for RepairAnswer {
    type Error = DamagedRollback;

    fn try_from(refusal: Refusal) -> Result<Self, DamagedRollback> {
        Ok(match refusal {
            Refusal::NotFailed => Self::NotFailed,
            Refusal::Busy => Self::StillRunning,
            Refusal::FailedBelow => Self::FailedBelow,
            Refusal::Stuck => Self::Stuck,
            Refusal::Damaged(run, damage) => return Err(DamagedRollback { run: run.into(), damage }),
        })
    }
}

/// An intervention of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    #[serde(serialize_with = "json::time")]
    pub at: SystemTime,
}

impl fmt::Display for Intervention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", Escaped(&self.kind), Escaped(&self.source))?;
        self.note.as_ref().map_or(Ok(()), |note| write!(f, ": {}", Escaped(note)))
    }
}

/// The reason for which a run is stuck if no living program has its saga.
pub fn no_program(saga: &str) -> String {
    format!(
        "no living program has saga `{saga}`; start one that has it, or if the saga was renamed, write \
         `#[saga(was = \"{saga}\")]`"
    )
}
