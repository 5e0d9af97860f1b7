//! What clients and operators ask of hierarchies, and the answers.

use std::collections::BTreeSet;
use std::time::SystemTime;

use crate::HandlerLimits;
use scoop_core::{Failure, Lineage};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::types::ParentRef;
use crate::HierarchyId;
use crate::repair::{Decision, RepairAction};
use crate::util::retries::Attempt;
use crate::util::{ids, json};

/// The part of a hierarchy that a request is about.
#[derive(Clone, Debug)]
pub(crate) struct RequestTarget {
    pub(crate) lineage: Lineage,
    pub(crate) message: Uuid,
}

/// The identity of a request: repeated under its id, it is carried out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestKey {
    pub(crate) id: Uuid,
    pub(crate) attempt: Attempt,
    /// Whether the request is only checked: it is answered like any other, and changes nothing.
    pub(crate) is_dry_run: bool,
}

impl RequestKey {
    pub(crate) fn new() -> Self {
        Self { id: ids::now_v7(), attempt: Attempt::First, is_dry_run: false }
    }

    pub(crate) fn with(self, attempt: Attempt) -> Self {
        Self { attempt, ..self }
    }
}

#[derive(Debug)]
pub(crate) struct CancelResult {
    pub(crate) fresh: bool,
    /// A run gives up because of it, or has since an earlier attempt.
    pub(crate) any_marked: bool,
    /// The runs that give up by now, because of it or of an earlier one.
    pub(crate) giving_up: Vec<ParentRef>,
}

#[derive(Debug)]
pub(crate) enum RollbackStart {
    Begun(Vec<String>),
    Unfinished,
    NoHandlers,
    RolledBack,
    FailedBefore,
}

/// A message that a handle waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    pub(crate) root: Uuid,
    pub(crate) message: Uuid,
    /// The name of the replies that are decisions, if a decision is enough.
    pub(crate) decision: Option<&'static str>,
}

/// How far a message is.
#[derive(Debug)]
pub(crate) struct MessageStatus {
    pub(crate) emitted: bool,
    /// Whether a run of it is unfinished, and does not only wait for an operator.
    pub(crate) in_progress: bool,
    /// The outcome of each handler, unless it is in progress.
    pub(crate) handlers: Vec<HandlerOutcome>,
}

/// What became of a message with one of its handlers.
#[derive(Debug)]
pub(crate) enum HandlerOutcome {
    Unfinished,
    Committed,
    RolledBack(Failure),
    RollbackFailed { failure: Failure, cause: Failure },
}

#[derive(Debug)]
pub(crate) struct RepairResult {
    /// The handlers of the runs that are ready now.
    pub(crate) handlers: Vec<String>,
    /// The parent, which may wait for no child any more.
    pub(crate) parent: Option<ParentRef>,
}

impl RepairResult {
    /// The result of a dry run: no work is left.
    pub(super) fn checked() -> Self {
        Self { handlers: vec![], parent: None }
    }

    /// The work left after an attempt whose answer was lost: the parent may wait for no child any more. Workers find
    /// ready runs without a notification.
    pub(super) fn before(target: &RequestTarget, at: OffsetDateTime) -> Self {
        let (root, above) = (target.lineage.root_id(), target.lineage.parent());
        Self { handlers: vec![], parent: above.map(|above| ParentRef { root, id: above.id(), at }) }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct InterventionSubject<'a> {
    pub(crate) target: &'a RequestTarget,
    pub(crate) handler: &'a str,
    pub(crate) kind: &'static str,
    /// None for a run that was stuck, or gets a signal.
    pub(crate) decision: Option<&'a Decision>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester<'a> {
    pub(crate) note: &'a str,
    pub(crate) source: &'a str,
    pub(crate) asked: RequestKey,
}

pub(crate) struct RepairRequest<'a> {
    pub(crate) action: RepairAction,
    pub(crate) requester: Requester<'a>,
}

/// The number of queues without a living worker that a starting program lists.
pub(crate) const ABANDONED_MAX: usize = 100;

/// A part of the list of handlers; by default all of it.
#[derive(Clone, Debug, Default)]
pub struct HandlerList {
    /// The topic and the saga that it begins after; empty for the first.
    pub after: (String, String),
    /// A text that the name of the topic or of the saga has.
    pub named: String,
    /// The topic.
    pub topic: Option<String>,
    /// The saga.
    pub saga: Option<String>,
    /// How many, at most.
    pub limit: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingRuns {
    Keep,
    Drop,
}

#[derive(Debug)]
pub(crate) struct RetiredHandler {
    pub(crate) was_registered: bool,
    pub(crate) pending: i64,
    pub(crate) dropped: usize,
    /// The parents, which may wait for no child any more.
    pub(crate) parents: Vec<ParentRef>,
}

/// The result of one page of a redelivery.
#[derive(Debug, Default)]
pub(crate) struct Redelivery {
    /// The hierarchies that continue or begin, one for each message.
    pub(crate) roots: BTreeSet<Uuid>,
    pub(crate) handlers: BTreeSet<String>,
    /// Whether a message has a due time or a deadline.
    pub(crate) has_timer: bool,
    /// The event to continue after; `None` at the end.
    pub(crate) next: Option<Uuid>,
}

/// A handler to which messages are delivered, whether or not a process with it is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RegisteredHandler {
    /// The topic that it is subscribed to.
    pub topic: String,
    /// The saga.
    pub handler: String,
    /// The time of its registration, or of the latest one after it was retired.
    #[serde(serialize_with = "json::time")]
    pub since: SystemTime,
    /// The service of the program that has started last with it; `None` if none has.
    pub service: Option<String>,
    /// The limits of the saga.
    pub limits: HandlerLimits,
}

/// A relaunch of the first message of a hierarchy.
pub(crate) struct Relaunch<'a> {
    pub(crate) root: Uuid,
    /// `None` for that of the message.
    pub(crate) payload: Option<&'a Value>,
    pub(crate) even_if_committed: bool,
    pub(crate) again: bool,
    pub(crate) requester: Requester<'a>,
}

/// The hierarchies with the same first message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Relaunches {
    /// The hierarchy whose message was launched again as this one.
    #[serde(rename = "relaunch_of")]
    pub(crate) of: Option<HierarchyId>,
    /// The hierarchies as which its message was launched again, the oldest first.
    #[serde(rename = "relaunched_as")]
    pub(crate) as_others: Vec<HierarchyId>,
}
