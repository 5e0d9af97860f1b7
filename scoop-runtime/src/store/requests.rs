//! What clients and operators ask of hierarchies, and the answers.

use scoop_core::{Failure, Lineage};
use time::OffsetDateTime;
use uuid::Uuid;

use super::types::ParentRef;
use crate::repair::{Decision, RepairAction};
use crate::util::ids;
use crate::util::retries::Attempt;

/// The part of a hierarchy that a request is about.
#[derive(Clone, Debug)]
pub struct RequestTarget {
    /// The run, or the hierarchy.
    pub lineage: Lineage,
    pub(crate) message: Uuid,
}

/// The identity of a request: repeated under its id, it is carried out once.
#[derive(Clone, Copy, Debug)]
pub struct RequestKey {
    pub(crate) id: Uuid,
    pub(crate) attempt: Attempt,
    /// Whether the request is only checked: it is answered like any other, and changes nothing.
    pub is_dry_run: bool,
}

impl RequestKey {
    pub(crate) fn new() -> Self {
        Self { id: ids::now_v7(), attempt: Attempt::First, is_dry_run: false }
    }

    /// The same request in this attempt.
    pub fn with(self, attempt: Attempt) -> Self {
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

/// Who makes a request, and why.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
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
