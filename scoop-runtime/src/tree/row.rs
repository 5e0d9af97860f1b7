//! Rows of the tree query: a run, or a message without a handler.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use scoop_core::{EventKind, Failure, Lineage, SignalKey, Undoes, Wait, visible_step};
use uuid::Uuid;

use super::{CancellationRequest, FAILURE_BYTES_MAX, Role, RunEvent, RunInfo, RunState, UnhandledMessage};
use crate::HierarchyId;
use crate::model::answers::RollbackFailure;
use crate::model::format::system_time;
use crate::model::pause::Pause;
use crate::model::program::IDENTIFIER_PREFIX;
use crate::model::run::{RowState, no_failure};

#[derive(Debug)]
pub(crate) enum RunRow {
    Run(Box<RunInfo>),
    /// A message without a handler, with the lineage of its emitter.
    Unhandled(Lineage, UnhandledMessage),
}

#[derive(Debug)]
pub(crate) enum RunStage {
    Unfinished(WorkingState),
    Committed,
    RolledBack,
    /// There is none, although the run has begun.
    Missing,
}

#[derive(Debug, Default)]
pub(crate) struct WorkingState {
    pub(crate) state: RowState,
    pub(crate) attempts: u32,
    pub(crate) reason: Option<String>,
    pub(crate) rolling_back: bool,
    pub(crate) ready_at: Option<SystemTime>,
    pub(crate) give_up_at: Option<SystemTime>,
    pub(crate) giving_up: bool,
    /// No living worker has its saga.
    pub(crate) is_abandoned: bool,
    pub(crate) owner: Option<Uuid>,
    pub(crate) signal: Option<SignalKey>,
    /// The pauses that cover it, if it is ready.
    pub(crate) pauses: Vec<Pause>,
}

/// What identifies a run for a reader.
#[derive(Debug)]
pub(crate) struct RunHead<'a> {
    pub(crate) lineage: Lineage,
    pub(crate) message_id: Uuid,
    pub(crate) handler: &'a str,
    pub(crate) topic: &'a str,
}

impl RunRow {
    /// A run, read at `read_at` by the clock of the database.
    pub(crate) fn new(
        head: RunHead<'_>,
        recorded: RunStage,
        mut events: Vec<RunEvent>,
        read_at: Option<SystemTime>,
    ) -> Self {
        number_repeats(&mut events);
        let state = state_of(&recorded, &events, read_at);
        let working = match recorded {
            RunStage::Unfinished(working) => working,
            RunStage::Committed | RunStage::RolledBack | RunStage::Missing => WorkingState::default(),
        };
        let is_ready = matches!(
            state,
            RunState::Pending
                | RunState::Ready
                | RunState::Sleeping
                | RunState::AwaitingSignal
                | RunState::Retrying { .. }
        );
        let ended =
            matches!(state, RunState::Committed | RunState::RolledBack(_) | RunState::RollbackFailed(_));
        let duration = || {
            let (first, last) = (events.first()?.at?, events.last()?.at?);
            last.duration_since(first).ok().filter(|_| ended)
        };
        Self::Run(Box::new(RunInfo {
            handler: head.handler.to_owned(),
            topic: head.topic.to_owned(),
            message_id: head.message_id,
            lineage: head.lineage,
            rolling_back: working.rolling_back && !ended,
            attempts: working.attempts,
            worker: working.owner.map(|owner| format!("{IDENTIFIER_PREFIX}{owner}")),
            wakes_at: working.ready_at.filter(|at| is_ready && read_at.is_none_or(|now| *at > now)),
            queue_time: None,
            duration: duration(),
            deadline: working.give_up_at.filter(|_| !ended),
            giving_up: working.giving_up && !ended,
            is_abandoned: working.is_abandoned && is_ready,
            pauses: if is_ready { working.pauses } else { vec![] },
            pending_cancellations: vec![],
            former_executions: 0,
            execution_began_at: None,
            awaits: working.signal.filter(|_| state == RunState::AwaitingSignal),
            refused_signal: working.reason.clone().filter(|_| state == RunState::AwaitingSignal),
            last_failure: working.reason.filter(|_| state == RunState::Running && working.attempts > 0),
            state,
            events,
            events_left_out: 0,
            interventions: vec![],
            interventions_left_out: 0,
            children: vec![],
            unhandled: vec![],
            read_at,
        }))
    }

    /// Sets the number of executions before the newest one, and the time of its beginning.
    #[must_use]
    pub(crate) fn after_executions(mut self, count: u32, began_at: Option<SystemTime>) -> Self {
        if let Self::Run(run) = &mut self {
            (run.former_executions, run.execution_began_at) = (count, began_at);
        }
        self
    }

    #[must_use]
    pub(crate) fn queued_for(mut self, time: Option<Duration>) -> Self {
        if let Self::Run(run) = &mut self {
            run.queue_time = time;
        }
        self
    }

    #[must_use]
    pub(crate) fn without_events(mut self, count: usize) -> Self {
        if let Self::Run(run) = &mut self {
            run.events_left_out = count;
        }
        self
    }

    /// A message without a handler; `emitter` is the lineage of its emitter.
    pub(crate) fn unhandled(
        emitter: Lineage,
        message_id: Uuid,
        topic: &str,
        at: Option<SystemTime>,
        redelivered_as: Option<Uuid>,
    ) -> Self {
        let redelivered_as = redelivered_as.map(HierarchyId::from);
        Self::Unhandled(emitter, UnhandledMessage { topic: topic.to_owned(), message_id, at, redelivered_as })
    }

    pub(crate) fn lineage(&self) -> &Lineage {
        match self {
            Self::Run(run) => &run.lineage,
            Self::Unhandled(emitter, _) => emitter,
        }
    }
}

impl RunEvent {
    /// Sets the worker and the failure, and the number of earlier calls if the event records a call of the child failure
    /// handler.
    pub(crate) fn written_by(
        self,
        worker: Option<String>,
        handler_iteration: Option<i32>,
        failure: Option<Failure>,
    ) -> Self {
        let role = handler_iteration.map_or(Role::OfKind, |_| Role::HandledFailures);
        Self { worker, failure, role, ..self }
    }

    /// Replaces its failure, which the store has not read.
    pub(crate) fn without_failure(self) -> Self {
        let mib = FAILURE_BYTES_MAX / (1024 * 1024);
        let message = format!("the failure is left out: a tree has {mib} MiB of failures at most");
        Self { failure: Some(Failure::new("LeftOut", message, "unknown")), ..self }
    }

    pub(crate) fn before(self, wait: Option<&Wait>) -> Self {
        let strategies = wait.map_or(&[][..], Wait::messages).to_vec();
        let wait =
            wait.filter(|wait| strategies.is_empty() || wait.limit().is_some() || wait.signal().is_some());
        let sleep = wait.filter(|wait| wait.signal().is_none());
        let awaits = wait.filter(|wait| wait.signal().is_some()).cloned();
        Self { sleeps_until: sleep.map(|wait| system_time(wait.time())), awaits, strategies, ..self }
    }

    /// Sets whether the step that completed with it has no compensation.
    pub(crate) fn without_compensation(self, has_none: bool) -> Self {
        Self { has_no_compensation: has_none, ..self }
    }

    pub(crate) fn continued(self, as_new: bool) -> Self {
        if as_new { Self { role: Role::AsNew, ..self } } else { self }
    }

    /// Marks the first event after some that were left out.
    pub(crate) fn after_gap(self, follows_gap: bool) -> Self {
        Self { follows_gap, ..self }
    }

    /// Sets the reason for which a part of it cannot be read.
    pub(crate) fn marked(self, unreadable: Option<String>) -> Self {
        Self { unreadable, ..self }
    }
}

impl CancellationRequest {
    pub(crate) fn new(lineage: Lineage, request: Option<Failure>, at: Option<SystemTime>) -> Self {
        let unknown = || Failure::new("Unknown", "no reason is recorded", "unknown");
        let Failure { message, source, .. } = request.unwrap_or_else(unknown);
        Self { lineage, reason: message, source, at }
    }
}

/// Determines the meaning and the duration of each event.
fn number_repeats(events: &mut [RunEvent]) {
    let (mut began_rollback, mut completed, mut before) = (false, BTreeMap::new(), None::<SystemTime>);
    let (mut has_gap, mut failed_in) = (false, None);
    for event in events {
        if event.follows_gap {
            (has_gap, before) = (true, None);
        }
        if event.kind == EventKind::RollingBack {
            (began_rollback, failed_in) = (true, event.step.clone());
        }
        // The event of a completion may be left out. The step that failed did not complete then.
        let may_be_completed = |step: &str| has_gap && failed_in.as_deref() != Some(step);
        let step = event.step.as_deref().unwrap_or_default();
        let part = Undoes::of(step).filter(|_| began_rollback);
        event.role = match (event.kind, part) {
            // The parts before it have undone steps.
            (EventKind::RolledBack, Some(part)) if is_wait(part.step) && !completed.is_empty() => {
                Role::OfPart
            }
            (_, Some(part)) if !completed.contains_key(part.step) && !may_be_completed(part.step) => {
                Role::NothingToUndo
            }
            (EventKind::Suspended, Some(part)) if !part.of_children => match completed.get(part.step) {
                Some(true) => Role::Passed,
                _ => Role::Compensated,
            },
            (EventKind::Suspended, Some(_)) => Role::ChildrenRolledBack,
            (EventKind::Suspended, None) if event.role == Role::HandledFailures => Role::HandledFailures,
            (EventKind::Suspended, None) if event.role == Role::AsNew => Role::AsNew,
            (EventKind::Suspended, None) if is_wait(step) => Role::BeganToWait,
            (EventKind::Suspended, None) => Role::Completed,
            (_, Some(_)) => Role::OfPart,
            (_, None) => Role::OfKind,
        };
        if event.role == Role::Completed {
            completed.insert(step.to_owned(), event.has_no_compensation);
        }
        event.duration = before.zip(event.at).and_then(|(before, at)| at.duration_since(before).ok());
        before = event.at.or(before);
    }
}

fn is_wait(step: &str) -> bool {
    visible_step(step) != step
}

fn state_of(recorded: &RunStage, events: &[RunEvent], read_at: Option<SystemTime>) -> RunState {
    let newest = |kind: EventKind| {
        let event = events.iter().rev().find(|event| event.kind == kind);
        event.and_then(|event| event.failure.clone()).unwrap_or_else(no_failure)
    };
    let working = match recorded {
        RunStage::Unfinished(working) => working,
        RunStage::Committed => return RunState::Committed,
        RunStage::RolledBack => return RunState::RolledBack(newest(EventKind::RollingBack)),
        RunStage::Missing => return RunState::Stuck { reason: MISSING.into() },
    };
    let reason = || working.reason.clone().unwrap_or_default();
    let sleeps = working.ready_at.is_some_and(|at| read_at.is_some_and(|now| at > now));
    match (working.state, events.last().map(|event| event.kind)) {
        (RowState::Stuck, _) => RunState::Stuck { reason: reason() },
        (RowState::Failed, _) => RunState::RollbackFailed(RollbackFailure::new(
            newest(EventKind::RollbackFailed),
            newest(EventKind::RollingBack),
        )),
        (RowState::Waiting, _) => RunState::Waiting,
        // One that has ended and is still in the working set has a row of its end.
        (RowState::Running | RowState::Ended, _) => RunState::Running,
        (RowState::Ready, _) if working.attempts > 0 => {
            RunState::Retrying { attempts: working.attempts, reason: reason() }
        }
        (RowState::Ready, None) => RunState::Pending,
        (RowState::Ready, _) if sleeps && working.signal.is_some() => RunState::AwaitingSignal,
        (RowState::Ready, Some(EventKind::Suspended)) if sleeps => {
            let by_strategy = events.last().is_some_and(|event| !event.strategies.is_empty());
            if by_strategy { RunState::Waiting } else { RunState::Sleeping }
        }
        (RowState::Ready, _) => RunState::Ready,
    }
}

/// Why a run without a row does not go on.
const MISSING: &str = "it has no row in `run` or in `ended_run`: somebody has deleted it";
