//! Rows of the database as Rust values.

use std::collections::BTreeMap;

use scoop_core::{ChildFailure, Context, Failure, Lineage, Path, Run, Suspension};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

/// The length at which an unreadable value is cut.
const SHOWN_CHARS_MAX: usize = 200;

/// A run under a claim. A statement changes nothing if that claim no longer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) root: Uuid,
    pub(crate) id: Uuid,
    pub(crate) epoch: i64,
}

/// A part of a rollback that has failed again.
#[derive(Debug)]
pub(crate) struct FailedPart {
    pub(crate) part: String,
    /// How often the children's failures had been handled before, if they were the reason.
    pub(crate) handler_iteration: Option<u32>,
    pub(crate) failure: Failure,
}

/// A claimed run, with all that is needed to continue it.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) key: Key,
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) payload: Value,
    /// Failed attempts since the last event that do not count as retries.
    pub(crate) attempts: i32,
    /// Retries since the last event, after failures that did not count.
    pub(crate) retries: u32,
    /// The definitions of the programs that made the attempts, the newest one last. Stale if there were none.
    pub(crate) tried_under: Vec<i32>,
    pub(crate) surroundings: Surroundings,
    /// Whether it may have to give up.
    pub(crate) overdue: bool,
    /// The definition under which its newest step completed.
    pub(crate) definition: Option<i32>,
    /// The definition that it is reserved for; 0 for none.
    pub(crate) reserved_for: i32,
    pub(crate) run: Run,
}

/// The surroundings of a run in its hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// A parent run waits for it.
    pub(crate) has_parent: bool,
    /// It belongs to a rollback, its own or that of an ancestor. It cannot be cancelled.
    pub(crate) undoing: bool,
}

/// The children that ended without success, as `scoop.failed_children` returns them.
#[derive(Deserialize)]
struct ChildrenRow {
    listed: Vec<ChildRow>,
    more: Vec<MoreRow>,
}

#[derive(Deserialize)]
struct ChildRow {
    rolled_back: Failure,
    rollback_failed: Option<Failure>,
    told: bool,
}

/// The number of unlisted failures of one kind; without a type if no listed one is like them.
#[derive(Deserialize)]
struct MoreRow {
    count: u64,
    #[serde(rename = "type")]
    kind: Option<String>,
    message: Option<String>,
    unrolled: bool,
    told: bool,
}

/// A run of a claim that this worker cannot work on.
#[derive(Debug)]
pub(crate) enum Unclaimed {
    /// It was claimed, but this program cannot read its record.
    Unreadable { key: Key, handler: String, why: String },
    /// The database refuses its claim: it is stuck.
    Refused { root: Uuid, id: Uuid, why: String },
}

impl Claimed {
    /// From a row of `run_claim.sql`. `worker` is the identifier in events.
    pub(crate) fn from_row(row: &PgRow, worker: &str) -> sqlx::Result<Result<Self, Unclaimed>> {
        let key = Key { root: row.try_get("root")?, id: row.try_get("id")?, epoch: row.try_get("epoch")? };
        let handler = row.try_get("handler")?;
        let claimed = Self::read(row, worker, key);
        Ok(claimed.map_err(|error| Unclaimed::Unreadable { key, handler, why: error.to_string() }))
    }

    fn read(row: &PgRow, worker: &str, key: Key) -> sqlx::Result<Self> {
        let lineage = lineage(row)?;
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
        run.replied = row.try_get("replied")?;
        if let (true, Some(Json(cause))) = (row.try_get("backward")?, failure) {
            let told = row.try_get("told")?;
            let failed_before = row.try_get("failed_before")?;
            run.path = Path::Backward { cause, told, begun: false, failed_before, plan: None };
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
            surroundings: Surroundings {
                has_parent: row.try_get("has_parent")?,
                undoing: row.try_get("undoing")?,
            },
            overdue: row.try_get("overdue")?,
            definition: row.try_get("definition")?,
            reserved_for: row.try_get("reserved_for")?,
            run,
        })
    }
}

impl ChildrenRow {
    fn into_failures(self) -> Vec<ChildFailure> {
        let listed = self.listed.into_iter().map(ChildRow::into_failure);
        listed.chain(self.more.into_iter().map(MoreRow::into_failure)).collect()
    }
}

impl MoreRow {
    fn into_failure(self) -> ChildFailure {
        let like = self.kind.as_deref().zip(self.message.as_deref());
        let more = Failure::more(self.count, like);
        ChildFailure {
            rollback_failed: self.unrolled.then(|| more.clone()),
            rolled_back: more,
            told: self.told,
        }
    }
}

impl ChildRow {
    fn into_failure(self) -> ChildFailure {
        ChildFailure { rolled_back: self.rolled_back, rollback_failed: self.rollback_failed, told: self.told }
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

/// The lineage of a run.
pub(crate) fn lineage(row: &PgRow) -> sqlx::Result<Lineage> {
    Lineage::from_ids(row.try_get("lineage")?)
        .ok_or_else(|| sqlx::Error::Decode("a run without a lineage".into()))
}

/// A failure that has to be recorded.
pub(crate) fn failure(row: &PgRow, column: &str) -> sqlx::Result<Failure> {
    let failure: Option<Json<Failure>> = row.try_get(column)?;
    let unknown = || Failure::new("Unknown", "no failure is on record", "scoop");
    Ok(failure.map_or_else(unknown, |Json(failure)| failure))
}

/// The failure; or a substitute, and the reason why it cannot be read.
pub(crate) fn readable(exception: Value) -> (Option<Failure>, Option<String>) {
    let text = exception.to_string();
    match serde_json::from_value(exception) {
        Ok(failure) => (failure, None),
        Err(error) => {
            let shortened: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            let stand_in = Failure::new("Unreadable", &shortened, "unknown");
            (Some(stand_in), Some(format!("its failure is not as the protocol has it: {error}")))
        }
    }
}

/// A count as stored. No count is ever negative.
pub(crate) fn unsigned(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}

/// Points in time as the database reads them.
pub(crate) fn timestamps<S: serde::Serializer>(
    times: &[OffsetDateTime],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Timestamp(#[serde(with = "time::serde::rfc3339")] OffsetDateTime);
    serializer.collect_seq(times.iter().copied().map(Timestamp))
}
