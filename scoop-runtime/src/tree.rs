//! The runs of a hierarchy, as data and as text.

mod assembly;
mod display;
mod json;
mod row;
mod timeline;

use std::time::{Duration, SystemTime};

use scoop_core::wait::MessageWait;
use scoop_core::{EventKind, Failure, Lineage, OPERATOR, SignalKey, Undoes, Wait, visible_step};
use serde::Serialize;
use uuid::Uuid;

pub(crate) use self::assembly::{FAILURE_BYTES_MAX, LeftOut, TreeBounds, TreeRows};
pub use self::display::{TreeHints, TreeText};
pub(crate) use self::row::{RunHead, RunRow, RunStage, WorkingState};
pub use self::timeline::{Bar, BarKind};
use crate::model::answers::{Relaunches, RollbackFailure};
use crate::model::pause::Pause;
use crate::{FailedStep, HierarchyId, Intervention, RunId, RunPhase};

/// The runs of a hierarchy. Display it to see the runs with their events, times and workers. The text indents 32
/// levels; below them, a run begins with its level.
///
/// Records that cannot be read, such as those that another program wrote, are marked, and the rest is shown.
#[derive(Clone, Debug, Serialize)]
pub struct Tree {
    #[serde(rename = "runs", serialize_with = "json::runs")]
    roots: Vec<RunInfo>,
    /// The message that started the hierarchy, and those whose emitter cannot be read.
    unhandled: Vec<UnhandledMessage>,
    cancellations: Vec<CancellationRequest>,
    #[serde(flatten)]
    relaunches: Relaunches,
    unreadable: Vec<String>,
    #[serde(rename = "complete")]
    is_complete: bool,
    #[serde(rename = "more_unhandled")]
    has_more_unhandled: bool,
}

/// One run in its current state. Display it for one line without its children and events.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RunInfo {
    /// Its lineage: the ids of its ancestors and its own id.
    #[serde(flatten, serialize_with = "json::lineage")]
    pub lineage: Lineage,
    /// The saga.
    pub handler: String,
    /// The topic of the message.
    pub topic: String,
    /// The message.
    #[serde(rename = "message")]
    pub message_id: Uuid,
    /// Its state.
    #[serde(flatten, serialize_with = "json::state")]
    pub state: RunState,
    /// Whether its rollback is in progress.
    pub rolling_back: bool,
    /// Failed attempts since its last event.
    pub attempts: u32,
    /// The worker that executes it, if one does: its identifier, as in [`RunEvent::worker`].
    pub worker: Option<String>,
    /// The earliest time at which it can begin or continue, if that is after the tree was read: the end of a delay, a
    /// sleep or a backoff. A row may have a time after the year 9999: here it is the last day of that year.
    #[serde(serialize_with = "json::time")]
    pub wakes_at: Option<SystemTime>,
    /// The signal that it awaits, with the key.
    pub awaits: Option<SignalKey>,
    /// Why its step could not read the signal that came, after which it awaits another one.
    pub refused_signal: Option<String>,
    /// How long it was in its queue before it began; `None` if it has not begun.
    #[serde(rename = "queued_ms", serialize_with = "json::millis")]
    pub queue_time: Option<Duration>,
    /// Its duration, from its beginning to its end; `None` before the end.
    #[serde(rename = "took_ms", serialize_with = "json::millis")]
    pub duration: Option<Duration>,
    /// The earliest deadline that applies to it, unless it has ended.
    #[serde(serialize_with = "json::time")]
    pub deadline: Option<SystemTime>,
    /// Whether it is ready although no living program has its saga.
    #[serde(rename = "abandoned")]
    pub is_abandoned: bool,
    /// The pauses because of which no worker continues it, longest first. Empty while a worker executes a step.
    pub pauses: Vec<Pause>,
    /// Whether it will give up, since it was cancelled or has missed its deadline.
    pub giving_up: bool,
    /// The cancellation requests for which it will give up, oldest first.
    pub pending_cancellations: Vec<CancellationRequest>,
    /// The number of executions before its newest one: how often it continued as new. The events and children here are
    /// those of the newest execution, and a rollback goes back to its beginning.
    pub former_executions: u32,
    /// The time at which its newest execution began, if that is not the first one.
    #[serde(serialize_with = "json::time")]
    pub execution_began_at: Option<SystemTime>,
    /// Its recorded events, oldest first.
    pub events: Vec<RunEvent>,
    /// The number of its events that were left out because of [`ReadTree::events`](crate::ReadTree::events);
    /// [10,000](RunInfo::LEFT_OUT_MAX) stands for that or more.
    pub events_left_out: usize,
    /// The interventions of operators on it, oldest first.
    pub interventions: Vec<Intervention>,
    /// The number of interventions on it that were left out because of [`ReadTree::events`](crate::ReadTree::events). They were
    /// between the two halves of `interventions`; [10,000](RunInfo::LEFT_OUT_MAX) stands for that or more.
    pub interventions_left_out: usize,
    /// The runs of the messages that it launched.
    #[serde(skip)]
    pub children: Vec<RunInfo>,
    /// The messages that it launched without any handler, in the order of their launch.
    pub unhandled: Vec<UnhandledMessage>,
    /// The reason of the latest failed attempt since its last event, while a worker executes the next one.
    #[serde(skip)]
    last_failure: Option<String>,
    #[serde(skip)]
    read_at: Option<SystemTime>,
}

/// A message for which no handler was subscribed when it was launched. Display it for one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnhandledMessage {
    /// The topic of the message.
    pub topic: String,
    /// The message.
    #[serde(rename = "message")]
    pub message_id: Uuid,
    /// The time of its launch; `None` if the recorded time is outside the years 1 to 9999.
    #[serde(serialize_with = "json::time")]
    pub at: Option<SystemTime>,
    /// The hierarchy that handles it, if it was redelivered (`operate().handlers().redeliver`).
    pub redelivered_as: Option<HierarchyId>,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RunState {
    /// It has not begun.
    Pending,
    /// It can continue, and no worker executes it at this moment.
    Ready,
    /// It sleeps, until [`RunInfo::wakes_at`].
    Sleeping,
    /// It awaits the signal [`RunInfo::awaits`].
    AwaitingSignal,
    /// An attempt failed, because of its step or of the infrastructure (database or connection), and is retried at
    /// [`RunInfo::wakes_at`].
    Retrying {
        /// The number of failed attempts so far.
        attempts: u32,
        /// The reason of the latest failure.
        reason: String,
    },
    /// A worker executes it.
    Running,
    /// It waits for its children: [`RunInfo::unfinished_children`].
    Waiting,
    /// No living program can continue it, or it may crash its workers.
    Stuck {
        /// The reason.
        reason: String,
    },
    /// It has committed.
    Committed,
    /// It was rolled back because of this failure.
    RolledBack(Failure),
    /// Its rollback failed, and rests until an operator decides about it, or about a failed descendant.
    RollbackFailed(RollbackFailure),
}

/// A recorded event of a run. Display it for one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunEvent {
    /// The recorded type of the event.
    pub kind: EventKind,
    /// The recorded name of the step, or in a rollback that of its part. [`RunEvent::subject`] returns the step
    /// itself.
    pub step: Option<String>,
    /// The time; `None` if the recorded time is outside the years 1 to 9999.
    pub at: Option<SystemTime>,
    /// The time since the previous event of this run, or since the end of the wait after that event, or since the repair
    /// after it. For a step this is its duration.
    pub duration: Option<Duration>,
    /// The wait after the event, for the children of the step or for the end of its sleep. After a failed rollback it
    /// begins with the repair. `None` if there was none, if it is not over, or if the tree lacks these children.
    pub waited: Option<Duration>,
    sleeps_until: Option<SystemTime>,
    wait_end: WaitEnd,
    /// The repair after a failed rollback, from which the wait for the children counts.
    repaired_at: Option<SystemTime>,
    awaits: Option<Wait>,
    strategies: Vec<MessageWait>,
    /// The identifier of the worker that wrote it.
    pub worker: Option<String>,
    /// The failure that it records, if it records one. A tree has 4 MiB of failures at most: first the newest of each kind of each
    /// run, then all others, from the newest one on. A failure beyond that is replaced by one of the type `LeftOut`.
    pub failure: Option<Failure>,
    /// The part of the record that cannot be read, with the reason.
    pub unreadable: Option<String>,
    /// Whether events before it were left out because of [`ReadTree::events`](crate::ReadTree::events).
    pub follows_gap: bool,
    /// Whether the step that completed with it has no compensation, as far as that is recorded.
    has_no_compensation: bool,
    role: Role,
}

/// A cancellation request for a hierarchy or a part of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CancellationRequest {
    /// The run that gives up with its descendants; the whole hierarchy if there is one id.
    #[serde(flatten, serialize_with = "json::lineage")]
    pub lineage: Lineage,
    /// The reason.
    pub reason: String,
    /// The source of the request.
    pub source: String,
    /// The time; `None` if the recorded time is outside the years 1 to 9999.
    #[serde(serialize_with = "json::time")]
    pub at: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitEnd {
    /// With the end of the sleep.
    Slept,
    /// With the end of the children.
    Ended,
    RolledBack,
    RollbackFailed,
}

/// The meaning of an event, which depends on the earlier events of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The meaning of its kind.
    OfKind,
    Completed,
    BeganToWait,
    /// A step completed, and a new execution began.
    AsNew,
    HandledFailures,
    /// The rollback of the children of a step, if any, was requested.
    ChildrenRolledBack,
    /// A step was rolled back.
    Compensated,
    /// The same of a step without a compensation.
    Passed,
    /// It names a part of the rollback of a step that never completed, or of a wait: that has nothing to undo.
    NothingToUndo,
    /// Another event of a rollback that names a part of it.
    OfPart,
}

/// The word for a step without a compensation in a rollback.
const PASSED: &str = "passed, nothing to undo";

impl RunState {
    /// The state as lists of runs have it, without its details.
    pub fn phase(&self) -> RunPhase {
        match self {
            Self::Pending => RunPhase::Pending,
            Self::Ready => RunPhase::Ready,
            Self::Sleeping => RunPhase::Sleeping,
            Self::AwaitingSignal => RunPhase::AwaitingSignal,
            Self::Retrying { .. } => RunPhase::Retrying,
            Self::Running => RunPhase::Running,
            Self::Waiting => RunPhase::Waiting,
            Self::Stuck { .. } => RunPhase::Stuck,
            Self::Committed => RunPhase::Committed,
            Self::RolledBack(_) => RunPhase::RolledBack,
            Self::RollbackFailed(_) => RunPhase::RollbackFailed,
        }
    }
}

impl RunInfo {
    /// The maximum value of [`events_left_out`](Self::events_left_out) and of
    /// [`interventions_left_out`](Self::interventions_left_out), which stands for that or more.
    pub const LEFT_OUT_MAX: usize = 10_000;

    /// The id of this run, for [`Scoop::cancel`](crate::Scoop::cancel), `operate().failures().retry` and
    /// other requests.
    pub fn id(&self) -> RunId {
        self.lineage.id().into()
    }

    /// The hierarchy that it belongs to.
    pub fn hierarchy(&self) -> HierarchyId {
        self.lineage.root_id().into()
    }

    /// Whether it has ended: committed, rolled back, or failed to roll back.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, RunState::Committed | RunState::RolledBack(_) | RunState::RollbackFailed(_))
    }

    /// The time at which it began, if it has begun and the time can be read.
    pub fn began_at(&self) -> Option<SystemTime> {
        self.events.first()?.at
    }

    /// Its interventions before those that were left out, and after them.
    fn split_interventions(&self) -> (&[Intervention], &[Intervention]) {
        // As many are read at each end.
        let parts = 1 + usize::from(self.interventions_left_out > 0);
        self.interventions.split_at(self.interventions.len() / parts)
    }

    /// The children that have not ended; a [waiting](RunState::Waiting) run waits for them.
    pub fn unfinished_children(&self) -> impl Iterator<Item = &RunInfo> {
        self.children.iter().filter(|child| !child.has_ended())
    }

    /// The end of its sleep, if it waits for nothing else. A deadline may come before that.
    pub fn sleeps_until(&self) -> Option<SystemTime> {
        let until = self.events.last().and_then(|event| event.sleeps_until).or(self.wakes_at);
        until.filter(|_| self.state == RunState::Sleeping)
    }
}

impl RunEvent {
    pub(crate) fn new(kind: EventKind, step: Option<String>, at: Option<SystemTime>) -> Self {
        let (duration, waited, worker, failure, unreadable) = (None, None, None, None, None);
        let (sleeps_until, repaired_at, awaits, role) = (None, None, None, Role::OfKind);
        let (wait_end, follows_gap) = (WaitEnd::Ended, false);
        Self {
            kind,
            step,
            at,
            duration,
            waited,
            sleeps_until,
            wait_end,
            repaired_at,
            awaits,
            strategies: vec![],
            worker,
            failure,
            unreadable,
            follows_gap,
            has_no_compensation: false,
            role,
        }
    }

    fn waits_from(&self) -> Option<SystemTime> {
        self.repaired_at.or(self.at)
    }

    /// The beginning and the end of the wait after it.
    fn wait(&self) -> Option<(SystemTime, SystemTime)> {
        let from = self.waits_from()?;
        Some((from, from.checked_add(self.waited?)?))
    }

    /// Whether a step completed with this event.
    pub fn is_completion(&self) -> bool {
        matches!(self.role, Role::Completed | Role::AsNew)
    }

    /// Whether a step was rolled back with this event, perhaps one without a compensation.
    pub fn is_undoing(&self) -> bool {
        matches!(self.role, Role::Compensated | Role::Passed) && !self.is_by_operator()
    }

    /// Whether an operator skipped the rollback of a step with this event.
    pub fn is_skipping(&self) -> bool {
        matches!(self.role, Role::Compensated | Role::Passed) && self.is_by_operator()
    }

    /// Whether the event follows from the decision of an operator, and not from code.
    fn is_by_operator(&self) -> bool {
        self.worker.as_deref() == Some(OPERATOR)
    }

    /// The step of the event, also where the recorded name is that of a part of a rollback, or of the wait before a step.
    /// `None` for the end of a run.
    pub fn subject(&self) -> Option<&str> {
        self.recorded_subject().map(visible_step)
    }

    fn recorded_subject(&self) -> Option<&str> {
        if matches!(self.kind, EventKind::Committed | EventKind::RolledBack) {
            return None;
        }
        let step = self.step.as_deref();
        match self.role {
            Role::NothingToUndo => None,
            Role::ChildrenRolledBack | Role::Compensated | Role::Passed | Role::OfPart => {
                step.map(|step| Undoes::of(step).map_or(step, |part| part.step))
            }
            Role::OfKind | Role::Completed | Role::BeganToWait | Role::AsNew | Role::HandledFailures => step,
        }
    }

    /// Whether it is an end of a run, perhaps a temporary one: a committed run may be rolled back later.
    fn ends(&self) -> bool {
        matches!(self.kind, EventKind::Committed | EventKind::RolledBack | EventKind::RollbackFailed)
    }

    /// Whether it contains information beyond the other events and the children.
    pub fn has_details(&self) -> bool {
        let repeats = matches!(self.role, Role::ChildrenRolledBack | Role::NothingToUndo);
        self.kind != EventKind::Suspended || !repeats || self.is_by_operator()
    }
}

/// These runs and their descendants, each before its children.
fn with_descendants(roots: &[RunInfo]) -> Vec<&RunInfo> {
    let (mut all, mut ahead) = (vec![], roots.iter().rev().collect::<Vec<_>>());
    while let Some(run) = ahead.pop() {
        all.push(run);
        ahead.extend(run.children.iter().rev());
    }
    all
}

impl Tree {
    /// The runs of the message that started the hierarchy.
    pub fn roots(&self) -> &[RunInfo] {
        &self.roots
    }

    /// All runs, each before its children.
    pub fn runs(&self) -> Vec<&RunInfo> {
        with_descendants(&self.roots)
    }

    /// The messages of the hierarchy without a handler: the one that started it, or messages that its runs launched.
    pub fn unhandled(&self) -> Vec<&UnhandledMessage> {
        let of_runs = self.runs().into_iter().flat_map(|run| &run.unhandled);
        self.unhandled.iter().chain(of_runs).collect()
    }

    /// The origin of this cause: the step of the first run that failed with it by its own failure.
    pub(crate) fn origin_of(&self, cause: &Failure) -> Option<FailedStep> {
        let own = |event: &&RunEvent| {
            let failure = event.failure.as_ref().filter(|_| event.kind == EventKind::RollingBack);
            failure.is_some_and(|failure| !failure.is_wrapper() && failure.contains(cause))
        };
        let failed = self.runs().into_iter().filter_map(|run| Some((run, run.events.iter().find(own)?)));
        let (run, event) = failed.min_by_key(|(_, event)| event.at)?;
        Some(FailedStep { saga: run.handler.clone(), step: event.subject()?.to_owned() })
    }

    /// The cancellation requests for the hierarchy, for the runs of the tree, and for those above them, oldest first.
    pub fn cancellations(&self) -> &[CancellationRequest] {
        &self.cancellations
    }

    /// The hierarchy whose message was launched again (`operate().runs().relaunch`) in this one.
    pub fn relaunch_of(&self) -> Option<HierarchyId> {
        self.relaunches.of
    }

    /// The hierarchies in which the first message of this one was launched again (`operate().runs().relaunch`), the oldest first.
    pub fn relaunched_as(&self) -> &[HierarchyId] {
        &self.relaunches.as_others
    }

    /// Whether no run was left out because of [`ReadTree::depth`](crate::ReadTree::depth) or
    /// [`ReadTree::limit`](crate::ReadTree::limit). Also false if so many messages were launched that a tree with a limit did not
    /// look at all of them.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether there may be messages without a handler besides those of [`unhandled`](Self::unhandled): a tree with a
    /// [limit](crate::ReadTree::limit) has 100 of them at most, and looks for them among so many launched messages of each run as
    /// that limit and 1,000 more, and among 10,000 more in all.
    pub fn has_more_unhandled(&self) -> bool {
        self.has_more_unhandled
    }

    /// Records that cannot be read at all and are not part of the tree, each with the reason.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }
}
