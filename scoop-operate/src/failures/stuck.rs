//! Runs that do not continue by themselves.

use std::time::SystemTime;

use scoop_core::Lineage;
use scoop_runtime::internal::{StoredTime, UNKNOWN_MAX, json, no_program, phase, stored_time, system_time};
use scoop_runtime::{HierarchyId, RunId, RunPhase, RunRequest};
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::lineage_or_ids;
use crate::cursor::ListCursor;
use crate::list_request::{ListItem, PagedListItem};
use crate::statements::STUCK_RUNS;

/// A run that does not continue by itself: no living program can continue it, or the results of too many attempts are
/// unknown.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StuckRun {
    /// Its lineage: the ids of its ancestors and its own id.
    #[serde(flatten, serialize_with = "json::lineage")]
    pub lineage: Lineage,
    /// Its state: [`RunPhase::Stuck`], or another one if no living worker has its saga. Then it is due, and
    /// [`Failures::retry`](crate::Failures::retry) has no effect.
    #[serde(rename = "state")]
    pub phase: RunPhase,
    /// The saga.
    pub handler: String,
    /// The topic of the message.
    pub topic: String,
    /// The message.
    #[serde(rename = "message")]
    pub message_id: Uuid,
    /// The latest completed step, if there is one.
    pub step: Option<String>,
    /// Whether it is rolling back.
    pub rolling_back: bool,
    /// The reason for which it is stuck.
    pub reason: String,
    /// The time since which it is stuck.
    #[serde(serialize_with = "json::time")]
    pub since: SystemTime,
    /// Whether it was cancelled, or missed a deadline. It gives up when it can continue; until then all its ancestors
    /// wait.
    pub giving_up: bool,
    /// Whether a cancellation makes it give up: it is not part of a rollback, and does not give up already.
    pub can_give_up: bool,
    /// Whether only [`Failures::retry`](crate::Failures::retry) makes it continue: the results of several attempts in a row are
    /// unknown. Any other stuck run continues when a program that can continue it starts, too.
    pub needs_retry: bool,
    /// `since` as stored.
    #[serde(skip)]
    stored_since: StoredTime,
}

impl StuckRun {
    /// The id of the run, for [`Failures::retry`](crate::Failures::retry).
    pub fn id(&self) -> RunId {
        self.lineage.id().into()
    }

    /// The requests of an operator that can have an effect on it.
    pub fn requests(&self) -> impl Iterator<Item = RunRequest> {
        self.phase.requests_if(self.can_give_up)
    }

    /// Its position in the list, from which [another page](crate::ListRequest::after_cursor) begins.
    pub fn cursor(&self) -> ListCursor {
        ListCursor((self.stored_since, self.lineage.id()))
    }

    /// The hierarchy that it belongs to.
    pub fn hierarchy(&self) -> HierarchyId {
        self.lineage.root_id().into()
    }
}

impl PagedListItem for StuckRun {
    fn position(&self) -> ListCursor {
        self.cursor()
    }
}

impl ListItem for StuckRun {
    const STATEMENT: &'static str = STUCK_RUNS;
    const DOING: &'static str = "stuck runs were listed";
    const IS_PAGED: bool = true;

    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let (handler, reason): (String, Option<String>) = (row.try_get("handler")?, row.try_get("reason")?);
        let stored_since = stored_time(row, "stuck_since")?;
        Ok(Self {
            lineage: lineage_or_ids(row)?,
            phase: phase(row)?,
            topic: row.try_get("topic")?,
            message_id: row.try_get("message_id")?,
            step: row.try_get("step")?,
            rolling_back: row.try_get("rolling_back")?,
            reason: reason.unwrap_or_else(|| no_program(&handler)),
            handler,
            since: system_time(stored_since.time()),
            giving_up: row.try_get("giving_up")?,
            can_give_up: row.try_get("can_give_up")?,
            needs_retry: row.try_get::<i32, _>("unknown_attempts")? >= UNKNOWN_MAX,
            stored_since,
        })
    }
}
