//! Rows of the database as Rust values.

use std::collections::BTreeMap;

use scoop_core::{ChildFailure, Context, Execution, Failure, Lineage, Path, Priority, Run, Suspension, Wait};
use serde::Deserialize;
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::RunPhase;
use crate::model::run::{RowState, no_failure};
use crate::model::stored_time::StoredTime;
use crate::store::{ClaimKey, ClaimedRun, HierarchyFlags, Unclaimed, micros_of, readable, sender};

/// The failure in this column, for a list. A value that cannot be read must not hide the other rows: JSON of the server may be
/// nested deeper than that of this program, or have larger numbers.
pub fn failure_if_readable(row: &PgRow, column: &str) -> Option<Failure> {
    let Json(failure) = row.try_get::<Option<Json<Value>>, _>(column).ok()??;
    readable(failure).0
}

pub(super) fn row_state(name: &str) -> sqlx::Result<RowState> {
    RowState::from_name(name)
        .ok_or_else(|| sqlx::Error::Decode(format!("`{name}` is no state of a run").into()))
}

/// The priority in the column of this name, as `scoop.priority_of` returns it.
pub fn priority(row: &PgRow) -> sqlx::Result<Priority> {
    let level: i32 = row.try_get("priority")?;
    Ok(Priority::ALL.into_iter().find(|it| *it as i32 == level).unwrap_or_default())
}

/// The children that ended without success, as `scoop.failed_children` returns them.
#[derive(Deserialize)]
struct ChildrenRow {
    children: Vec<ChildRow>,
    more: Vec<MoreRow>,
}

#[derive(Deserialize)]
struct ChildRow {
    rolled_back: Failure,
    rollback_failed: Option<Failure>,
    rollback_requested: bool,
}

/// The number of unlisted failures of one kind; without a type if no listed one is like them.
#[derive(Deserialize)]
struct MoreRow {
    count: u64,
    #[serde(rename = "type")]
    kind: Option<String>,
    message: Option<String>,
    has_failed_rollback: bool,
    rollback_requested: bool,
}

impl ClaimedRun {
    /// From a row of `run_claim.sql`. `worker` is the identifier in events.
    pub(crate) fn from_row(row: &PgRow, worker: &str) -> sqlx::Result<Result<Self, Unclaimed>> {
        let key =
            ClaimKey { root: row.try_get("root")?, id: row.try_get("id")?, epoch: row.try_get("epoch")? };
        let handler = row.try_get("handler")?;
        let claimed = Self::read(row, worker, key);
        Ok(claimed.map_err(|error| Unclaimed::Unreadable { key, handler, why: error.to_string() }))
    }

    fn read(row: &PgRow, worker: &str, key: ClaimKey) -> sqlx::Result<Self> {
        let lineage = lineage(row)?;
        let parent: Option<Uuid> = row.try_get("parent")?;
        let rollback_requested = row.try_get("rollback_requested")?;
        if !is_lineage_of(&lineage, key, parent) {
            return Err(sqlx::Error::Decode(
                "its lineage is not that of its hierarchy, its parent and itself".into(),
            ));
        }
        let handler: String = row.try_get("handler")?;
        let failure: Option<Json<Failure>> = row.try_get("failure")?;
        let children: Option<Json<ChildrenRow>> = row.try_get("failed_children")?;
        let outputs: Option<Json<BTreeMap<String, Value>>> = row.try_get("outputs")?;
        let completions: Option<Json<BTreeMap<String, u32>>> = row.try_get("completions")?;
        let context: Option<Json<Context>> = row.try_get("context")?;

        let source = format!("{handler}[{worker}]");
        let mut run = Run::new(lineage, row.try_get("message_id")?, source);
        run.last = suspension(row)?;
        run.suspensions = unsigned(row.try_get("suspensions")?);
        run.completions = completions.map(|Json(completions)| completions).unwrap_or_default();
        run.outputs = outputs.map(|Json(outputs)| outputs).unwrap_or_default();
        run.context = context.map(|Json(context)| context).unwrap_or_default();
        let after: Option<StoredTime> = row.try_get("execution_since")?;
        run.execution = Execution {
            number: unsigned(row.try_get("execution")?),
            after: after.map(|at| micros_of(at.time())),
            ..Execution::default()
        };
        run.replied = row.try_get("replied")?;
        if let (true, Some(Json(cause))) = (row.try_get("rolling_back")?, failure) {
            let failed_before = row.try_get("has_failed_before")?;
            run.path = Path::Backward { cause, rollback_requested, begun: false, failed_before, plan: None };
        }
        run.failed_children = children.map_or(vec![], |Json(children)| children.into_failures());
        Ok(Self {
            key,
            topic: row.try_get("topic")?,
            handler,
            payload: row.try_get("payload")?,
            attempts: row.try_get("attempts")?,
            retries: unsigned(row.try_get("retries")?),
            tried_under: row.try_get::<Option<_>, _>("tried_under")?.unwrap_or_default(),
            newest_failure: row.try_get("reason")?,
            flags: HierarchyFlags { has_parent: parent.is_some(), in_rollback: row.try_get("undoing")? },
            began_at: time_if_any(row, "began_at")?.unwrap_or_else(OffsetDateTime::now_utc),
            overdue: row.try_get("overdue")?,
            definition: row.try_get("definition")?,
            reserved_for: row.try_get("reserved_for")?,
            limit_key: None,
            signalled_by: sender(row.try_get("signalled_by")?),
            wait: row.try_get::<Option<Json<Wait>>, _>("wait")?.map(|Json(wait)| wait),
            run,
        })
    }
}

/// Whether a run has this lineage. No parent waits for a run whose rollback was requested, or without which its parent has gone on.
fn is_lineage_of(lineage: &Lineage, key: ClaimKey, parent: Option<Uuid>) -> bool {
    let is_first = lineage.ids().len() == 2;
    let above = lineage.ids().iter().rev().nth(1).filter(|_| !is_first);
    lineage.root_id() == key.root
        && lineage.id() == key.id
        && parent.is_none_or(|parent| above == Some(&parent))
        && (is_first || above.is_some())
}

impl ChildrenRow {
    fn into_failures(self) -> Vec<ChildFailure> {
        let children = self.children.into_iter().map(ChildRow::into_failure);
        children.chain(self.more.into_iter().map(MoreRow::into_failure)).collect()
    }
}

impl MoreRow {
    fn into_failure(self) -> ChildFailure {
        let like = self.kind.as_deref().zip(self.message.as_deref());
        let more = Failure::more(self.count, like);
        ChildFailure {
            rollback_failed: self.has_failed_rollback.then(|| more.clone()),
            rolled_back: more,
            rollback_requested: self.rollback_requested,
        }
    }
}

impl ChildRow {
    fn into_failure(self) -> ChildFailure {
        ChildFailure {
            rolled_back: self.rolled_back,
            rollback_failed: self.rollback_failed,
            rollback_requested: self.rollback_requested,
        }
    }
}

/// The newest suspension, as the working set keeps it.
fn suspension(row: &PgRow) -> sqlx::Result<Option<Suspension>> {
    let Some(step) = row.try_get("step")? else {
        return Ok(None);
    };
    let iteration: Option<i32> = row.try_get("iteration")?;
    let handler_iteration: Option<i32> = row.try_get("handler_iteration")?;
    Ok(Some(Suspension {
        step,
        jump: row.try_get("jump")?,
        iteration: unsigned(iteration.unwrap_or(0)),
        handler_iteration: handler_iteration.map(unsigned),
    }))
}

/// The state in words.
pub fn phase(row: &PgRow) -> sqlx::Result<RunPhase> {
    let name: &str = row.try_get("phase")?;
    name.parse().map_err(|error: String| sqlx::Error::Decode(error.into()))
}

/// The time in a column.
pub fn time(row: &PgRow, column: &str) -> sqlx::Result<OffsetDateTime> {
    Ok(stored_time(row, column)?.time())
}

/// The time in a column that may be empty.
pub fn time_if_any(row: &PgRow, column: &str) -> sqlx::Result<Option<OffsetDateTime>> {
    Ok(row.try_get::<Option<StoredTime>, _>(column)?.map(StoredTime::time))
}

/// The time in a column, as it is stored.
pub fn stored_time(row: &PgRow, column: &str) -> sqlx::Result<StoredTime> {
    row.try_get(column)
}

/// The lineage of a run.
pub fn lineage(row: &PgRow) -> sqlx::Result<Lineage> {
    Lineage::from_ids(row.try_get("lineage")?)
        .ok_or_else(|| sqlx::Error::Decode("a run without a lineage".into()))
}

/// A failure that has to be recorded.
pub(crate) fn failure(row: &PgRow, column: &str) -> sqlx::Result<Failure> {
    let failure: Option<Json<Failure>> = row.try_get(column)?;
    Ok(failure.map_or_else(no_failure, |Json(failure)| failure))
}

/// The failed attempts of a run since its last event. Not added by the statement, since a forged row may have counts whose sum it
/// could not return.
pub fn failed_attempts(row: &PgRow) -> sqlx::Result<u32> {
    let (attempts, retries) = (row.try_get("attempts")?, row.try_get("retries")?);
    Ok(unsigned(attempts).saturating_add(unsigned(retries)))
}

/// A count as stored. No count is ever negative.
pub(crate) fn unsigned(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}
