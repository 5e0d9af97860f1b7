//! The message about failed runs: [`Failed`]. The function `scoop.send_failed` sends it (`0006_failures.sql`).

use std::fmt;
use std::time::SystemTime;

use scoop_core::{Failure, Message};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use crate::{HierarchyId, RunId};

/// The topic without a filter, and the prefix of the others.
pub(crate) const TOPIC: &str = "scoop.failed";

/// A failed run, as a message: a saga that subscribes to it is an error queue.
///
/// The engine sends it, in the transaction that records the failure, so exactly once:
///
/// * when a run that a client launched, or that was launched as detached, ends [rolled back](FailedOutcome::RolledBack),
///   or with a [failed rollback](FailedOutcome::RollbackFailed);
/// * when any run becomes [stuck](FailedOutcome::Stuck).
///
/// Each is the message of a hierarchy of its own. No failure in such a hierarchy sends another one.
///
/// `#[subscribes(Failed(saga = Checkout, outcome = "stuck"))]` limits it to a saga, to an outcome, or to both. Other
/// failures then cost the handler nothing, not even a run.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// # use scoop_core::{Message, Result};
/// # use scoop::Failed;
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # struct OrderPlaced { order: i64 }
/// # impl Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
/// fn describe(failed: &Failed) -> Result<String> {
///     let order = failed.message::<OrderPlaced>()?.map_or(0, |message| message.order);
///     Ok(format!("order {order} {}: {}", failed.outcome, failed.failure))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failed {
    /// What became of the run.
    pub outcome: FailedOutcome,
    /// The saga of the run, by its stored name.
    pub saga: String,
    /// The step that failed, or the part of the rollback whose failure ended it. Of a stuck run, the last completed
    /// step; none if it has completed no step.
    pub step: Option<String>,
    /// The hierarchy of the run.
    pub hierarchy: HierarchyId,
    /// The run.
    pub run: RunId,
    /// The topic of the message that the run handles.
    pub topic: String,
    /// The payload of that message. It is left out if it is so large or deep that this message could not be read: of
    /// about a megabyte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Why the run failed, with all causes and their places in the code. Of a stuck run, why it is stuck.
    pub failure: Failure,
    /// Why its rollback failed.
    #[serde(default)]
    pub rollback_failure: Option<Failure>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
}

/// What became of a failed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailedOutcome {
    /// All that it did is undone: it failed, was cancelled, missed a deadline, or a client requested its rollback.
    RolledBack,
    /// Its rollback failed: an operator has to decide.
    RollbackFailed,
    /// No living program can continue it, or it may crash its workers.
    Stuck,
}

impl Failed {
    /// Whether a topic is that of messages about failures, with a filter or without one.
    ///
    /// ```
    /// # extern crate scoop_runtime as scoop;
    /// use scoop::Failed;
    ///
    /// assert!(Failed::is_topic("scoop.failed.stuck:checkout") && !Failed::is_topic("orders.failed"));
    /// ```
    pub fn is_topic(topic: &str) -> bool {
        topic.strip_prefix(TOPIC).is_some_and(|filter| filter.is_empty() || filter.starts_with(['.', ':']))
    }

    /// The message that the run handles; `None` if it is of another type, by its topic, or left out.
    ///
    /// # Errors
    ///
    /// If its payload does not fit the type.
    pub fn message<M: Message>(&self) -> Result<Option<M>, serde_json::Error> {
        let payload = self.payload.as_ref().filter(|_| self.topic == M::TOPIC);
        payload.map(M::read_stored).transpose()
    }

    /// The time of the failure, by the clock of the database.
    pub fn at(&self) -> SystemTime {
        self.at.into()
    }
}

impl FailedOutcome {
    /// Its stored name, as filters have it.
    #[cfg(feature = "in-memory")]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RolledBack => "rolled_back",
            Self::RollbackFailed => "rollback_failed",
            Self::Stuck => "stuck",
        }
    }
}

impl fmt::Display for FailedOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RolledBack => "rolled back",
            Self::RollbackFailed => "rollback failed",
            Self::Stuck => "stuck",
        })
    }
}

#[diagnostic::do_not_recommend]
impl Message for Failed {
    const TOPIC: &'static str = TOPIC;
    type Reply = ();
}
