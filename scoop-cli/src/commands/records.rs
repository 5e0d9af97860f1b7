//! The JSON of runs, failures and events. The fields are documented in `docs/reference/command_line.md`; they stay as they are.

use std::collections::BTreeMap;

use scoop_core::{EventKind, Failure, SignalKey};
use scoop_operate::{FailureSummary, RecordedEvent, RunSummary, WorkerInfo};
use scoop_runtime::{Intervention, RunEvent, RunInfo, RunState, Tree, UnhandledMessage};
use serde::Serialize;
use uuid::Uuid;

use crate::times::{millis, utc, utc_if_limited};

/// A run in a list.
#[derive(Serialize)]
pub(crate) struct RunRecord<'a> {
    run: Uuid,
    hierarchy: Uuid,
    parent: Option<Uuid>,
    handler: &'a str,
    topic: &'a str,
    message: Uuid,
    state: &'static str,
    since: String,
    queued_ms: Option<u64>,
    took_ms: Option<u64>,
    waits_for: Option<&'static str>,
    attempts: u32,
    reason: Option<&'a str>,
    failure: Option<FailureRecord>,
    rolling_back: bool,
    deadline: Option<String>,
    wakes_at: Option<String>,
    awaits: Option<SignalRecord<'a>>,
    worker: Option<&'a str>,
    step: Option<&'a str>,
    /// By what it is found: values by field.
    found_by: BTreeMap<&'a str, &'a str>,
}

/// The main cause of a failure.
#[derive(Serialize)]
pub(crate) struct FailureRecord {
    code: String,
    headline: String,
    source: String,
    /// All causes, with their places in the code, where these are read.
    report: Option<String>,
}

/// A signal with its key.
#[derive(Serialize)]
pub(crate) struct SignalRecord<'a> {
    name: &'a str,
    key: &'a str,
}

/// A worker.
#[derive(Serialize)]
pub(crate) struct WorkerRecord<'a> {
    worker: &'a str,
    started_at: String,
    alive: bool,
    application: Option<&'a str>,
    address: Option<&'a str>,
}

/// A run of a hierarchy.
#[derive(Serialize)]
pub(crate) struct TreeRecord<'a> {
    run: Uuid,
    hierarchy: Uuid,
    parent: Option<Uuid>,
    handler: &'a str,
    topic: &'a str,
    message: Uuid,
    state: &'static str,
    reason: Option<&'a str>,
    failure: Option<FailureRecord>,
    rolling_back: bool,
    giving_up: bool,
    queued_ms: Option<u64>,
    took_ms: Option<u64>,
    attempts: u32,
    deadline: Option<String>,
    wakes_at: Option<String>,
    awaits: Option<SignalRecord<'a>>,
    worker: Option<&'a str>,
    events: Vec<StepRecord<'a>>,
    /// How many events are not listed; 10,000 stands for that or more.
    events_left_out: usize,
    interventions: Vec<InterventionRecord<'a>>,
    /// The same of its interventions.
    interventions_left_out: usize,
    unhandled: Vec<UnhandledRecord<'a>>,
}

/// The hierarchies with the same first message.
#[derive(Serialize)]
pub(crate) struct RelaunchesRecord {
    relaunch_of: Option<Uuid>,
    relaunched_as: Vec<Uuid>,
}

/// An event of a run.
#[derive(Serialize)]
struct StepRecord<'a> {
    kind: &'static str,
    what: &'static str,
    step: Option<&'a str>,
    at: Option<String>,
    took_ms: Option<u64>,
    waited_ms: Option<u64>,
    worker: Option<&'a str>,
    failure: Option<FailureRecord>,
    unreadable: Option<&'a str>,
    /// Whether events before it are not listed.
    follows_gap: bool,
}

/// The decision of an operator.
#[derive(Serialize)]
struct InterventionRecord<'a> {
    kind: &'a str,
    step: Option<&'a str>,
    note: Option<&'a str>,
    source: &'a str,
    at: String,
}

/// A message that no handler was subscribed to.
#[derive(Serialize)]
struct UnhandledRecord<'a> {
    topic: &'a str,
    message: Uuid,
    at: Option<String>,
    redelivered_as: Option<Uuid>,
}

/// A run of a hierarchy that cannot be read.
#[derive(Serialize)]
pub(crate) struct UnreadableRecord<'a> {
    /// The reason.
    pub(crate) unreadable: &'a str,
}

/// A recorded event.
#[derive(Serialize)]
pub(crate) struct EventRecord<'a> {
    id: Uuid,
    at: String,
    kind: &'static str,
    hierarchy: Uuid,
    run: Option<Uuid>,
    handler: Option<&'a str>,
    message: Uuid,
    step: Option<&'a str>,
    worker: Option<&'a str>,
    failure: Option<FailureRecord>,
}

impl From<&FailureSummary> for FailureRecord {
    fn from(failure: &FailureSummary) -> Self {
        let FailureSummary { code, headline, source, .. } = failure.clone();
        Self { code, headline, source, report: None }
    }
}

impl From<&Failure> for FailureRecord {
    fn from(failure: &Failure) -> Self {
        let cause = failure.root_causes().first().copied().unwrap_or(failure);
        Self {
            code: cause.kind.clone(),
            headline: failure.summary(),
            source: cause.source.clone(),
            report: Some(failure.report()),
        }
    }
}

impl FailureRecord {
    /// The failed compensation, of the failure of a rollback.
    fn of_rollback(failure: &Failure) -> Self {
        Self { report: Some(failure.report()), ..Self::from(failure.failed_compensation()) }
    }

    fn of_event(event: &RunEvent) -> Option<Self> {
        let failure = event.failure.as_ref()?;
        Some(match event.kind {
            EventKind::RollbackFailed => Self::of_rollback(failure),
            _ => failure.into(),
        })
    }
}

impl<'a> From<&'a SignalKey> for SignalRecord<'a> {
    fn from(signal: &'a SignalKey) -> Self {
        Self { name: &signal.name, key: &signal.key }
    }
}

impl<'a> From<&'a WorkerInfo> for WorkerRecord<'a> {
    fn from(worker: &'a WorkerInfo) -> Self {
        Self {
            worker: &worker.identifier,
            started_at: utc(worker.started_at),
            alive: worker.is_alive,
            application: worker.application.as_deref(),
            address: worker.address.as_deref(),
        }
    }
}

impl<'a> From<&'a RunSummary> for RunRecord<'a> {
    fn from(run: &'a RunSummary) -> Self {
        Self {
            run: run.run.uuid(),
            hierarchy: run.hierarchy.uuid(),
            parent: run.parent.map(Into::into),
            handler: &run.handler,
            topic: &run.topic,
            message: run.message_id,
            state: run.phase.name(),
            since: utc(run.since),
            queued_ms: run.queue_time().map(millis),
            took_ms: run.duration().map(millis),
            waits_for: run.waits_for.map(|wait| wait.name()),
            attempts: run.attempts,
            reason: run.reason.as_deref(),
            failure: run.failure.as_ref().map(Into::into),
            rolling_back: run.rolling_back,
            deadline: run.deadline.and_then(utc_if_limited),
            wakes_at: run.wakes_at.and_then(utc_if_limited),
            awaits: run.awaits.as_ref().map(Into::into),
            worker: run.worker.as_deref(),
            step: run.step.as_deref(),
            found_by: run.found_by.iter().map(|found| (&*found.name, &*found.value)).collect(),
        }
    }
}

impl RelaunchesRecord {
    /// Those of a hierarchy; `None` without any.
    pub(crate) fn of(tree: &Tree) -> Option<Self> {
        let relaunch_of = tree.relaunch_of().map(Into::into);
        let relaunched_as: Vec<_> = tree.relaunched_as().iter().map(|new| new.uuid()).collect();
        let is_any = relaunch_of.is_some() || !relaunched_as.is_empty();
        is_any.then_some(Self { relaunch_of, relaunched_as })
    }
}

impl<'a> From<&'a RunInfo> for TreeRecord<'a> {
    fn from(run: &'a RunInfo) -> Self {
        let (reason, failure) = match &run.state {
            RunState::Retrying { reason, .. } | RunState::Stuck { reason } => (Some(&**reason), None),
            RunState::RolledBack(failure) => (None, Some(failure.into())),
            RunState::RollbackFailed(failed) => (None, Some(FailureRecord::of_rollback(failed))),
            RunState::AwaitingSignal => (run.refused_signal.as_deref(), None),
            _ => (None, None),
        };
        let parent = run.lineage.parent().filter(|parent| parent.ids().len() > 1);
        Self {
            run: run.id().uuid(),
            hierarchy: run.hierarchy().uuid(),
            parent: parent.map(|parent| parent.id()),
            handler: &run.handler,
            topic: &run.topic,
            message: run.message_id,
            state: run.state.phase().name(),
            reason,
            failure,
            rolling_back: run.rolling_back,
            giving_up: run.giving_up,
            queued_ms: run.queue_time.map(millis),
            took_ms: run.took().map(millis),
            attempts: run.attempts,
            deadline: run.deadline.and_then(utc_if_limited),
            wakes_at: run.wakes_at.and_then(utc_if_limited),
            awaits: run.awaits.as_ref().map(Into::into),
            worker: run.worker.as_deref(),
            events: run.events.iter().map(Into::into).collect(),
            events_left_out: run.events_left_out,
            interventions: run.interventions.iter().map(Into::into).collect(),
            interventions_left_out: run.interventions_left_out,
            unhandled: run.unhandled.iter().map(Into::into).collect(),
        }
    }
}

impl<'a> From<&'a RunEvent> for StepRecord<'a> {
    fn from(event: &'a RunEvent) -> Self {
        Self {
            kind: event.kind.as_str(),
            what: event.word(),
            step: event.subject(),
            at: event.at.map(utc),
            took_ms: event.took.map(millis),
            waited_ms: event.waited.map(millis),
            worker: event.worker.as_deref(),
            failure: FailureRecord::of_event(event),
            unreadable: event.unreadable.as_deref(),
            follows_gap: event.follows_gap,
        }
    }
}

impl<'a> From<&'a Intervention> for InterventionRecord<'a> {
    fn from(done: &'a Intervention) -> Self {
        Self {
            kind: &done.kind,
            step: done.step.as_deref(),
            note: done.note.as_deref(),
            source: &done.source,
            at: utc(done.at),
        }
    }
}

impl<'a> From<&'a UnhandledMessage> for UnhandledRecord<'a> {
    fn from(message: &'a UnhandledMessage) -> Self {
        Self {
            topic: &message.topic,
            message: message.message_id,
            at: message.at.map(utc),
            redelivered_as: message.redelivered_as.map(Into::into),
        }
    }
}

impl<'a> From<&'a RecordedEvent> for EventRecord<'a> {
    fn from(event: &'a RecordedEvent) -> Self {
        Self {
            id: event.id,
            at: utc(event.at),
            kind: event.kind.as_str(),
            hierarchy: event.hierarchy.uuid(),
            run: event.run.map(Into::into),
            handler: event.handler.as_deref(),
            message: event.message_id,
            step: event.step.as_deref(),
            worker: event.worker.as_deref(),
            failure: event.failure.as_ref().map(Into::into),
        }
    }
}
