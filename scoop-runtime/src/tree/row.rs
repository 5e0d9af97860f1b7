//! Rows of the tree query: a run, or a message without a handler.

use std::collections::BTreeSet;
use std::time::SystemTime;

use scoop_core::{Escaped, EventKind, Failure, Lineage, Undoes};
use serde::Deserialize;
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{CancellationRequest, Role, RunEvent, RunInfo, RunState, UnhandledMessage};
use crate::engine::IDENTIFIER_PREFIX;
use crate::shown::system_time;
use crate::store::{lineage, no_failure, readable, time_if_any};
use crate::{HierarchyId, RollbackFailure, shown};

/// A row of `run_tree.sql`.
#[derive(Debug)]
pub(crate) enum RunRow {
    Run(Box<RunInfo>),
    /// A message without a handler, with the lineage of its emitter.
    Unhandled(Lineage, UnhandledMessage),
}

/// The state of a run in the working set.
#[derive(Debug, Default)]
pub(crate) struct Stands {
    pub(crate) state: String,
    pub(crate) attempts: u32,
    pub(crate) reason: Option<String>,
    pub(crate) backward: bool,
    /// The time from which it can be claimed, if it is ready.
    pub(crate) ready_at: Option<SystemTime>,
    pub(crate) give_up_at: Option<SystemTime>,
    pub(crate) gives_up: bool,
    /// No living worker has its saga.
    pub(crate) is_abandoned: bool,
    pub(crate) owner: Option<Uuid>,
}

#[derive(Deserialize)]
struct EventRow {
    #[serde(rename = "type")]
    kind: String,
    step: Option<String>,
    worker: Option<String>,
    /// The number of earlier calls of the child failure handler, if this is the record of such a call.
    handling: Option<i32>,
    exception: Option<Value>,
    /// Since 1970; `None` if the time is outside the years 1 to 9999.
    micros: Option<i64>,
}

impl RunRow {
    /// A run of this saga and topic, read at `read_at` by the clock of the database.
    pub(crate) fn new(
        lineage: Lineage,
        message_id: Uuid,
        (handler, topic): (&str, &str),
        stands: Option<Stands>,
        mut events: Vec<RunEvent>,
        read_at: Option<SystemTime>,
    ) -> Self {
        tell_apart(&mut events);
        let state = state_of(stands.as_ref(), &events);
        let stands = stands.unwrap_or_default();
        let is_ready = matches!(state, RunState::NotBegun | RunState::Ready | RunState::Retrying { .. });
        let ended =
            matches!(state, RunState::Committed | RunState::RolledBack(_) | RunState::RollbackFailed(_));
        Self::Run(Box::new(RunInfo {
            handler: handler.to_owned(),
            topic: topic.to_owned(),
            message_id,
            lineage,
            rolling_back: stands.backward && !ended,
            attempts: stands.attempts,
            worker: stands.owner.map(|owner| format!("{IDENTIFIER_PREFIX}{owner}")),
            wakes_at: stands.ready_at.filter(|at| is_ready && read_at.is_none_or(|now| *at > now)),
            deadline: stands.give_up_at.filter(|_| !ended),
            gives_up: stands.gives_up && !ended,
            is_abandoned: stands.is_abandoned && is_ready,
            pending_cancellations: vec![],
            state,
            events,
            interventions: vec![],
            children: vec![],
            unhandled: vec![],
            read_at,
        }))
    }

    /// A message without a handler; `emitter` is the lineage of its emitter.
    pub(crate) fn unhandled(
        emitter: Lineage,
        (message_id, topic): (Uuid, &str),
        at: Option<SystemTime>,
        redelivered_as: Option<Uuid>,
    ) -> Self {
        let redelivered_as = redelivered_as.map(HierarchyId::from);
        Self::Unhandled(emitter, UnhandledMessage { topic: topic.to_owned(), message_id, at, redelivered_as })
    }

    /// Marks a ready run without a living worker that has its saga. `is_alive` takes a topic and a handler.
    pub(crate) fn check_alive(&mut self, is_alive: impl Fn(&str, &str) -> bool) {
        if let Self::Run(run) = self
            && matches!(run.state, RunState::NotBegun | RunState::Ready | RunState::Retrying { .. })
        {
            run.is_abandoned = !is_alive(&run.topic, &run.handler);
        }
    }

    pub(crate) fn lineage(&self) -> &Lineage {
        match self {
            Self::Run(run) => &run.lineage,
            Self::Unhandled(emitter, _) => emitter,
        }
    }

    /// Decodes the row, or returns the reason for which it cannot be read.
    pub(crate) fn from_row(row: &PgRow) -> Result<Self, String> {
        Self::read(row).map_err(|error| {
            let handler: Option<&str> = row.try_get("handler").unwrap_or_default();
            let message: Option<Uuid> = row.try_get("message_id").unwrap_or_default();
            let message = message.map_or_else(String::new, |message| format!(" of message {message}"));
            let handler = Escaped(handler.unwrap_or("an unknown handler")).to_string();
            format!("a run of `{handler}`{message}: {}", Escaped(&error.to_string()))
        })
    }

    fn read(row: &PgRow) -> sqlx::Result<Self> {
        let (message, topic): (Uuid, &str) = (row.try_get("message_id")?, row.try_get("topic")?);
        let Some(handler) = row.try_get("handler")? else {
            let at = time(row, "launched_at")?;
            return Ok(Self::unhandled(lineage(row)?, (message, topic), at, row.try_get("redelivered_as")?));
        };
        let events: Option<Json<Vec<EventRow>>> = row.try_get("events")?;
        let events = events.into_iter().flat_map(|Json(events)| events);
        let events = events.filter_map(EventRow::into_event).collect();
        let stands = match row.try_get("state")? {
            Some(state) => Some(Stands::read(row, state)?),
            None => None,
        };
        let read_at = time(row, "read_at")?;
        Ok(Self::new(lineage(row)?, message, (handler, topic), stands, events, read_at))
    }
}

impl Stands {
    fn read(row: &PgRow, state: String) -> sqlx::Result<Self> {
        let attempts: i32 = row.try_get("attempts")?;
        Ok(Self {
            state,
            attempts: u32::try_from(attempts).unwrap_or(0),
            reason: row.try_get("reason")?,
            backward: row.try_get("backward")?,
            ready_at: time(row, "ready_at")?,
            give_up_at: time(row, "give_up_at")?,
            gives_up: row.try_get("gives_up")?,
            is_abandoned: row.try_get("is_abandoned")?,
            owner: row.try_get("owner")?,
        })
    }
}

impl EventRow {
    fn into_event(self) -> Option<RunEvent> {
        let micros =
            self.micros.map(|micros| OffsetDateTime::UNIX_EPOCH + time::Duration::microseconds(micros));
        let (failure, unreadable) = self.exception.map_or((None, None), readable);
        let unreadable = unreadable
            .or_else(|| self.micros.is_none().then(|| "its time is none of the years 1 to 9999".into()));
        let event = RunEvent::new(EventKind::from_name(&self.kind)?, self.step, micros.map(system_time));
        let role = if self.handling.is_some() { Role::HandledFailures } else { Role::Plain };
        Some(RunEvent { worker: self.worker, failure, unreadable, role, ..event })
    }
}

impl RunEvent {
    /// Sets the worker and the failure. `handles` is whether the event records a call of the child failure handler.
    pub(crate) fn written_by(self, worker: Option<String>, handles: bool, failure: Option<Failure>) -> Self {
        let role = if handles { Role::HandledFailures } else { Role::Plain };
        Self { worker, failure, role, ..self }
    }
}

impl CancellationRequest {
    /// A request as recorded.
    pub(crate) fn new(lineage: Lineage, request: Option<Failure>, at: Option<SystemTime>) -> Self {
        let unknown = || Failure::new("Unknown", "no reason is recorded", "unknown");
        let Failure { message, source, .. } = request.unwrap_or_else(unknown);
        Self { lineage, reason: message, source, at }
    }

    /// Decodes a request. Unreadable parts are marked; `None` without a readable lineage, since it then applies to no
    /// run.
    pub(crate) fn from_row(row: &PgRow) -> Option<Self> {
        let exception: Option<Json<Value>> = row.try_get("exception").ok()?;
        let (failure, _) = exception.map_or((None, None), |Json(exception)| readable(exception));
        Some(Self::new(lineage(row).ok()?, failure, time(row, "requested_at").ok()?))
    }
}

fn time(row: &PgRow, column: &str) -> sqlx::Result<Option<SystemTime>> {
    Ok(time_if_any(row, column)?.map(shown::system_time))
}

/// Determines the meaning and the duration of each event.
fn tell_apart(events: &mut [RunEvent]) {
    let (mut turned_back, mut completed, mut before) = (false, BTreeSet::new(), None::<SystemTime>);
    for event in events {
        turned_back |= event.kind == EventKind::RollingBack;
        let step = event.step.as_deref().unwrap_or_default();
        let part = Undoes::of(step).filter(|_| turned_back);
        event.role = match (event.kind, part) {
            (_, Some(part)) if !completed.contains(part.step) => Role::NothingToUndo,
            (EventKind::Suspended, Some(part)) if !part.of_children => Role::Undone,
            (EventKind::Suspended, Some(_)) => Role::ChildrenUndone,
            (EventKind::Suspended, None) if event.role == Role::HandledFailures => Role::HandledFailures,
            (EventKind::Suspended, None) => Role::Completed,
            (_, Some(_)) => Role::OfPart,
            (_, None) => Role::Plain,
        };
        if event.role == Role::Completed {
            completed.insert(step.to_owned());
        }
        event.took = before.zip(event.at).and_then(|(before, at)| at.duration_since(before).ok());
        before = event.at.or(before);
    }
}

/// The state in the working set while the run is in it; otherwise the state after its last event.
fn state_of(stands: Option<&Stands>, events: &[RunEvent]) -> RunState {
    let last = events.last();
    let turned_back = events.iter().rev().find(|event| event.kind == EventKind::RollingBack);
    let failure = |event: Option<&RunEvent>| {
        let known = event.and_then(|event| event.failure.clone());
        known.unwrap_or_else(no_failure)
    };
    let reason = || stands.and_then(|stands| stands.reason.clone()).unwrap_or_default();
    let attempts = stands.map_or(0, |stands| stands.attempts);
    match (stands.map(|stands| &*stands.state), last.map(|event| event.kind)) {
        (Some("stuck"), _) => RunState::Stuck { reason: reason() },
        (Some("waiting"), _) => RunState::Waiting,
        (Some("running"), _) => RunState::Running,
        (Some("ready"), _) if attempts > 0 => RunState::Retrying { attempts, reason: reason() },
        (_, None) => RunState::NotBegun,
        (Some("ready"), _) => RunState::Ready,
        (_, Some(EventKind::Committed)) => RunState::Committed,
        (_, Some(EventKind::RolledBack)) => RunState::RolledBack(failure(turned_back)),
        (_, Some(EventKind::RollbackFailed)) => {
            RunState::RollbackFailed(RollbackFailure::new(failure(last), failure(turned_back)))
        }
        // Not reached: one statement reads working set and events from one snapshot.
        _ => RunState::Running,
    }
}
