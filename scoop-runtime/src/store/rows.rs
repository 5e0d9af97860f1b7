//! What goes to the database and comes from it, in Rust's terms.

use std::collections::BTreeMap;

use scoop_core::{
    ChildFailure, Conclusion, Emission, Event, EventKind, Failure, Fate, Lineage, Path, Run, Suspension,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

/// Which run, under which claim. What no longer holds under this claim is not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) root: Uuid,
    pub(crate) id: Uuid,
    pub(crate) epoch: i64,
}

/// A run that was claimed, with all that is needed to go on with it.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) key: Key,
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) payload: Value,
    /// Attempts in vain since the last event.
    pub(crate) attempts: i32,
    pub(crate) run: Run,
}

#[derive(Deserialize)]
struct ChildRow {
    rolled_back: Failure,
    rollback_failed: Option<Failure>,
    told: bool,
}

/// A run that was claimed, but has something on record that this program cannot read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) key: Key,
    pub(crate) why: String,
}

impl Claimed {
    /// From a row of `run_claim.sql`. `worker` is the identifier in events.
    pub(crate) fn from_row(row: &PgRow, worker: &str) -> sqlx::Result<Result<Self, Unreadable>> {
        let lineage = Lineage::from_ids(row.try_get("lineage")?)
            .ok_or_else(|| sqlx::Error::Decode("a run without a lineage".into()))?;
        let epoch = row.try_get("epoch")?;
        let key = Key { root: lineage.root_id(), id: lineage.id(), epoch };
        let claimed = Self::read(row, worker, key, lineage);
        Ok(claimed.map_err(|error| Unreadable { key, why: error.to_string() }))
    }

    fn read(row: &PgRow, worker: &str, key: Key, lineage: Lineage) -> sqlx::Result<Self> {
        let handler: String = row.try_get("handler")?;
        let failure: Option<Json<Failure>> = row.try_get("failure")?;
        let children: Option<Json<Vec<ChildRow>>> = row.try_get("failed_children")?;
        let outputs: Option<Json<BTreeMap<String, Value>>> = row.try_get("outputs")?;

        let source = format!("{handler}[{worker}]");
        let mut run = Run::new(lineage, row.try_get("message_id")?, source);
        run.last = suspension(row)?;
        run.suspensions = unsigned(row.try_get("suspensions")?);
        run.outputs = outputs.map(|Json(outputs)| outputs).unwrap_or_default();
        if let (true, Some(Json(cause))) = (row.try_get("backward")?, failure) {
            let told = row.try_get("told")?;
            run.path = Path::Backward { cause, told, begun: false, plan: None };
        }
        run.failed_children = children
            .map_or(vec![], |Json(children)| children.into_iter().map(ChildRow::into_failure).collect());
        Ok(Self {
            key,
            topic: row.try_get("topic")?,
            handler,
            payload: row.try_get("payload")?,
            attempts: row.try_get("attempts")?,
            run,
        })
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
    let next: Option<i32> = row.try_get("next_step")?;
    let iteration: Option<i32> = row.try_get("iteration")?;
    let handler_iteration: Option<i32> = row.try_get("handler_iteration")?;
    Ok(Some(Suspension {
        step,
        next: next.map(|next| usize::try_from(next).unwrap_or(usize::MAX)),
        iteration: unsigned(iteration.unwrap_or(0)),
        handler_iteration: handler_iteration.map(unsigned),
    }))
}

/// A count as stored. No count is ever negative.
pub(crate) fn unsigned(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}

/// A count to be stored.
fn signed(count: impl TryInto<i32>) -> i32 {
    count.try_into().unwrap_or(i32::MAX)
}

/// What follows from one move of one run, as `run_settle.sql` takes it.
#[derive(Debug, Serialize)]
pub(crate) struct Settlement {
    root: Uuid,
    id: Uuid,
    epoch: i64,
    ends: Option<Ending>,
    step: Option<String>,
    next_step: Option<i32>,
    iteration: Option<i32>,
    handler_iteration: Option<i32>,
    suspensions: i32,
    outputs: Option<BTreeMap<String, Value>>,
    backward: bool,
    turns_back: bool,
    failure: Option<Failure>,
    rollback_failure: Option<Failure>,
    forgets: Option<&'static str>,
    event_count: usize,
    events: Vec<EventRow>,
    emissions: Vec<EmissionRow>,
    told: Vec<ToldRow>,
    told_because: Option<Failure>,
    output_name: Option<String>,
    output: Option<Value>,
}

/// How a run leaves the working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Ending {
    /// Its parent has to take note of its failure first.
    Noted,
    /// At once.
    Unnoted,
}

/// An event, named after the columns.
#[derive(Debug, Serialize)]
struct EventRow {
    /// How many events of the same settlement follow.
    until_last: usize,
    message_id: Uuid,
    #[serde(rename = "type")]
    kind: &'static str,
    step: Option<String>,
    next_step: Option<i32>,
    handler_iteration: Option<i32>,
    exception: Option<Failure>,
    detached_root: Option<Uuid>,
}

/// A message to be published.
#[derive(Debug, Serialize)]
struct EmissionRow {
    at: usize,
    id: Uuid,
    topic: String,
    payload: Value,
    detached_root: Option<Uuid>,
}

/// A message whose handlers have to roll back.
#[derive(Debug, Serialize)]
struct ToldRow {
    at: usize,
    message_id: Uuid,
}

impl Settlement {
    /// What follows for `before`, held under `key`.
    pub(crate) fn new(key: Key, before: &Run, conclusion: Conclusion) -> Self {
        let mut settlement = Self::of_fate(key, before, conclusion.fate);
        let count = conclusion.events.len();
        let events = conclusion.events.into_iter().enumerate();
        settlement.event_count = count;
        settlement.events = events.map(|(at, event)| EventRow::new(count - at - 1, event)).collect();
        let emissions = conclusion.emissions.into_iter().enumerate();
        settlement.emissions = emissions.map(|(at, emission)| EmissionRow::new(at, emission)).collect();
        let told = conclusion.told.into_iter().enumerate();
        settlement.told = told.map(|(at, message_id)| ToldRow { at, message_id }).collect();
        settlement.told_because = conclusion.told_because;
        (settlement.output_name, settlement.output) = conclusion.output.unzip();
        settlement
    }

    /// Which run, and under which epoch.
    pub(crate) fn id(&self) -> (Uuid, i64) {
        (self.id, self.epoch)
    }

    fn of_fate(key: Key, before: &Run, fate: Fate) -> Self {
        let has_parent = before.lineage.ids().len() > 2;
        let had_failed_children = !before.failed_children.is_empty();
        let mut settlement = Self::untouched(key);
        settlement.forgets = had_failed_children.then_some("all");
        match fate {
            Fate::GoesOn(run) => {
                if had_failed_children && !run.failed_children.is_empty() {
                    settlement.forgets = Some("rolled back");
                }
                settlement.turns_back = before.path == Path::Forward && run.path != Path::Forward;
                settlement.stand(run);
            }
            Fate::Committed => settlement.ends = Some(Ending::Unnoted),
            Fate::RolledBack { cause, told } => {
                let noted = has_parent && !told;
                settlement.ends = Some(if noted { Ending::Noted } else { Ending::Unnoted });
                settlement.turns_back = before.path == Path::Forward;
                settlement.backward = true;
                settlement.failure = Some(cause);
            }
            Fate::RollbackFailed { cause, failure, .. } => {
                settlement.ends = Some(if has_parent { Ending::Noted } else { Ending::Unnoted });
                settlement.turns_back = before.path == Path::Forward;
                settlement.backward = true;
                settlement.failure = Some(cause);
                settlement.rollback_failure = Some(failure);
            }
        }
        settlement
    }

    fn untouched(key: Key) -> Self {
        Self {
            root: key.root,
            id: key.id,
            epoch: key.epoch,
            ends: None,
            step: None,
            next_step: None,
            iteration: None,
            handler_iteration: None,
            suspensions: 0,
            outputs: None,
            backward: false,
            turns_back: false,
            failure: None,
            rollback_failure: None,
            forgets: None,
            event_count: 0,
            told_because: None,
            output_name: None,
            output: None,
            events: vec![],
            emissions: vec![],
            told: vec![],
        }
    }

    /// Where the run stands now.
    fn stand(&mut self, run: Run) {
        if let Some(last) = run.last {
            self.step = Some(last.step);
            self.next_step = last.next.map(signed);
            self.iteration = Some(signed(last.iteration));
            self.handler_iteration = last.handler_iteration.map(signed);
        }
        self.suspensions = signed(run.suspensions);
        self.outputs = (!run.outputs.is_empty()).then_some(run.outputs);
        if let Path::Backward { cause, .. } = run.path {
            self.backward = true;
            self.failure = Some(cause);
        }
    }
}

impl EventRow {
    fn new(until_last: usize, event: Event) -> Self {
        Self {
            until_last,
            message_id: event.message,
            kind: event.kind.as_str(),
            step: event.step,
            next_step: event.next_step.map(signed),
            handler_iteration: event.handler_iteration.map(signed),
            // Told once for all of them, in `told_because`.
            exception: event.exception.filter(|_| event.kind != EventKind::RollbackEmitted),
            detached_root: event.detached_root,
        }
    }
}

impl EmissionRow {
    fn new(at: usize, emission: Emission) -> Self {
        Self {
            at,
            id: emission.message,
            topic: emission.topic,
            payload: emission.payload,
            detached_root: emission.detached_root,
        }
    }
}

/// What became of a settlement that was applied.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    /// The run goes on at once, under the same claim.
    pub(crate) goes_on: bool,
    /// The run left the working set, or will when its parent has taken note.
    pub(crate) ended: bool,
    /// When its last event was.
    pub(crate) last_event_at: OffsetDateTime,
    /// The handlers that have something to do now.
    pub(crate) started: Vec<String>,
}

impl Settled {
    /// From a row of `run_settle.sql`, with the id of the run and the epoch of the settlement.
    pub(crate) fn from_row(row: &PgRow) -> sqlx::Result<((Uuid, i64), Self)> {
        let state: String = row.try_get("state")?;
        let settled = Self {
            goes_on: state == "running",
            ended: state == "ended",
            last_event_at: row.try_get("last_event_at")?,
            started: row.try_get("started")?,
        };
        Ok(((row.try_get("id")?, row.try_get("epoch")?), settled))
    }
}
