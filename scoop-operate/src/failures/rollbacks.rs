//! Runs whose rollback failed.

use std::time::SystemTime;

use scoop_core::{Failure, Lineage};
use scoop_runtime::internal::{
    FIRST_MAX, StoredTime, failure_if_readable, json, no_failure, stored_time, system_time,
};
use scoop_runtime::{HierarchyId, RunId, RunRequest};
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::lineage_or_ids;
use crate::cursor::ListCursor;
use crate::list_request::{ListItem, PagedListItem};
use crate::statements::FAILED_ROLLBACKS;

/// How many failed runs below each one of a page are read to find the first ones.
const READ_BELOW_MAX: i64 = 100;

/// A run whose rollback failed. It rests until an operator decides about it, or about those of [`failed_below`](Self::failed_below).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FailedRollback {
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
    /// The part of its rollback that failed.
    pub step: String,
    /// The failure. Earlier ones, before a repair, are among its events.
    #[serde(serialize_with = "json::rollback_failure")]
    pub failure: Failure,
    /// The time of the failure.
    #[serde(serialize_with = "json::time")]
    pub at: SystemTime,
    /// The failed runs below it because of which it failed, and that an operator has to decide about first; ten at most. It continues
    /// when those are settled. [`resolve`](crate::Failures::resolve) also settles them; [`skip`](crate::Failures::skip) leaves them
    /// failed, and the run stops waiting.
    pub failed_below: Vec<RunId>,
    /// `at` as stored.
    #[serde(skip)]
    stored_at: StoredTime,
}

impl FailedRollback {
    /// The id of the run, for [`Failures::retry`](crate::Failures::retry), [`Failures::skip`](crate::Failures::skip) and
    /// [`Failures::resolve`](crate::Failures::resolve).
    pub fn id(&self) -> RunId {
        self.lineage.id().into()
    }

    /// The decisions to offer about it: all if it failed by itself, otherwise none. `skip` and `resolve` are also accepted about a
    /// run above a failed one, which leaves that run failed or settles it with it.
    pub fn requests(&self) -> impl Iterator<Item = RunRequest> {
        let failed_by_itself = self.failed_below.is_empty();
        RunRequest::REPAIRS.into_iter().filter(move |_| failed_by_itself)
    }

    /// Its position in the list, from which [another page](crate::ListRequest::after_cursor) begins.
    pub fn cursor(&self) -> ListCursor {
        ListCursor((self.stored_at, self.lineage.id()))
    }

    /// The hierarchy that it belongs to.
    pub fn hierarchy(&self) -> HierarchyId {
        self.lineage.root_id().into()
    }
}

impl PagedListItem for FailedRollback {
    fn position(&self) -> ListCursor {
        self.cursor()
    }
}

impl ListItem for FailedRollback {
    const STATEMENT: &'static str = FAILED_ROLLBACKS;
    const DOING: &'static str = "failed rollbacks were listed";
    const IS_PAGED: bool = true;
    const FURTHER: &'static [i64] = &[FIRST_MAX as i64, READ_BELOW_MAX];

    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let failed_below: Vec<Uuid> = row.try_get("failed_below")?;
        let stored_at = stored_time(row, "failed_at")?;
        Ok(Self {
            lineage: lineage_or_ids(row)?,
            handler: row.try_get("handler")?,
            topic: row.try_get("topic")?,
            message_id: row.try_get("message_id")?,
            step: row.try_get::<Option<_>, _>("step")?.unwrap_or_else(|| "unknown".into()),
            failure: failure_if_readable(row, "failure").unwrap_or_else(no_failure),
            at: system_time(stored_at.time()),
            failed_below: failed_below.into_iter().map(Into::into).collect(),
            stored_at,
        })
    }
}
