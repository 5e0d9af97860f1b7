//! Decodes the rows of a tree.

use std::time::{Duration, SystemTime};

use scoop_core::{Escaped, EventKind, SignalKey, Wait};
use serde::Deserialize;
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::decode::{failed_attempts, lineage, row_state, time_if_any, unsigned};
use super::pause::pauses;
use crate::model::format::{self, system_time};
use crate::model::run::RowState;
use crate::store::readable;
use crate::tree::{RunHead, RunRow, RunStage, WorkingState};
use crate::{CancellationRequest, RunEvent};

#[derive(Deserialize)]
struct EventRow {
    #[serde(rename = "type")]
    kind: String,
    step: Option<String>,
    worker: Option<String>,
    /// The number of earlier calls of the child failure handler, if this is the record of such a call.
    handling: Option<i32>,
    exception: Option<Value>,
    /// What the run waits for after it.
    wait: Option<Value>,
    begins_execution: Option<bool>,
    follows_gap: bool,
    /// Whether the step that completed with it has no compensation.
    #[serde(default)]
    bare: Option<bool>,
    /// What of it was not read.
    left_out: Option<LeftOutPart>,
    /// Since 1970; `None` if the time is outside the years 1 to 9999.
    micros: Option<i64>,
}

const TOO_LARGE_WAIT: &str = "its wait is larger, or has more levels, than programs write";

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum LeftOutPart {
    Failure,
    Wait,
}

impl RunRow {
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
            return Ok(Self::unhandled(lineage(row)?, message, topic, at, row.try_get("redelivered_as")?));
        };
        let events: Option<Json<Vec<EventRow>>> = row.try_get("events")?;
        let events = events.into_iter().flat_map(|Json(events)| events);
        let left_out: Option<i64> = row.try_get("left_out")?;
        let left_out = left_out.and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
        let events = events.filter_map(|event| {
            let follows_gap = event.follows_gap;
            Some(event.into_event()?.after_gap(follows_gap))
        });
        let events = events.collect();
        let recorded = match row.try_get("state")? {
            Some("committed") => RunStage::Committed,
            Some("rolled_back") => RunStage::RolledBack,
            Some(state) => RunStage::Unfinished(WorkingState::read(row, row_state(state)?)?),
            None => RunStage::Missing,
        };
        let read_at = time(row, "read_at")?;
        let head = RunHead { lineage: lineage(row)?, message_id: message, handler, topic };
        let former: Option<i32> = row.try_get("execution")?;
        let queued: Option<f64> = row.try_get("queued_seconds")?;
        let row = Self::new(head, recorded, events, read_at)
            .after_executions(former.map_or(0, unsigned), time(row, "began_at")?)
            .without_events(left_out)
            .queued_for(queued.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()));
        Ok(row)
    }
}

impl WorkingState {
    fn read(row: &PgRow, state: RowState) -> sqlx::Result<Self> {
        Ok(Self {
            state,
            attempts: failed_attempts(row)?,
            reason: row.try_get("reason")?,
            rolling_back: row.try_get("rolling_back")?,
            ready_at: time(row, "ready_at")?,
            give_up_at: time(row, "give_up_at")?,
            giving_up: row.try_get("giving_up")?,
            is_abandoned: row.try_get("is_abandoned")?,
            owner: row.try_get("owner")?,
            signal: signal(row)?,
            pauses: pauses(row, "pauses")?,
        })
    }
}

impl EventRow {
    fn into_event(self) -> Option<RunEvent> {
        let micros =
            self.micros.map(|micros| OffsetDateTime::UNIX_EPOCH + time::Duration::microseconds(micros));
        let (failure, unreadable) = self.exception.map_or((None, None), readable);
        let unreadable = unreadable
            .or_else(|| self.micros.is_none().then(|| "its time is outside the years 1 to 9999".into()))
            .or_else(|| (self.left_out == Some(LeftOutPart::Wait)).then(|| TOO_LARGE_WAIT.into()));
        let event = RunEvent::new(EventKind::from_name(&self.kind)?, self.step, micros.map(system_time));
        let event = event.written_by(self.worker, self.handling, failure);
        let event = if self.left_out == Some(LeftOutPart::Failure) { event.without_failure() } else { event };
        let wait = self.wait.and_then(|wait| serde_json::from_value::<Wait>(wait).ok());
        let event = event.marked(unreadable).before(wait.as_ref());
        Some(
            event
                .continued(self.begins_execution == Some(true))
                .without_compensation(self.bare == Some(true)),
        )
    }
}

impl CancellationRequest {
    /// Decodes a request. Unreadable parts are marked; `None` without a readable lineage, since it then applies to no
    /// run.
    pub(crate) fn from_row(row: &PgRow) -> Option<Self> {
        let exception: Option<Json<Value>> = row.try_get("exception").ok()?;
        let (failure, _) = exception.map_or((None, None), |Json(exception)| readable(exception));
        Some(Self::new(lineage(row).ok()?, failure, time(row, "requested_at").ok()?))
    }
}

fn signal(row: &PgRow) -> sqlx::Result<Option<SignalKey>> {
    let signal: Option<String> = row.try_get("signal")?;
    let key: Option<String> = row.try_get("signal_key")?;
    Ok(signal.zip(key).map(|(name, key)| SignalKey { name, key }))
}

fn time(row: &PgRow, column: &str) -> sqlx::Result<Option<SystemTime>> {
    Ok(time_if_any(row, column)?.map(format::system_time))
}
