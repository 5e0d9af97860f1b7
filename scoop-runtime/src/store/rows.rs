//! What goes to the database and comes from it, in Rust's terms.

use std::collections::BTreeMap;

use scoop_core::{
    ChildFailure, Conclusion, Context, Emission, Event, EventKind, Failure, Fate, Lineage, Path, Run,
    Suspension,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::plain::Plain;

/// Which run, under which claim. What no longer holds under this claim is not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) root: Uuid,
    pub(crate) id: Uuid,
    pub(crate) epoch: i64,
}

/// What of a rollback failed that had failed before.
#[derive(Debug)]
pub(crate) struct FailedPart {
    pub(crate) part: String,
    /// How often the children's failures had been handled before, if they were the reason.
    pub(crate) handler_iteration: Option<u32>,
    pub(crate) failure: Failure,
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
    /// Attempts since the last event that failed, but did not count.
    pub(crate) retries: u32,
    pub(crate) surroundings: Surroundings,
    /// Whether it may have to give up.
    pub(crate) overdue: bool,
    pub(crate) run: Run,
}

/// What a run is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// A run above it waits for it.
    pub(crate) has_parent: bool,
    /// It belongs to a rollback, its own or that of a run above it. Nobody can ask it to give up.
    pub(crate) undoing: bool,
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
        let lineage = lineage(row)?;
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
        let context: Option<Json<Context>> = row.try_get("context")?;

        let source = format!("{handler}[{worker}]");
        let mut run = Run::new(lineage, row.try_get("message_id")?, source);
        run.last = suspension(row)?;
        run.suspensions = unsigned(row.try_get("suspensions")?);
        run.outputs = outputs.map(|Json(outputs)| outputs).unwrap_or_default();
        run.context = context.map(|Json(context)| context).unwrap_or_default();
        run.replied = row.try_get("replied")?;
        if let (true, Some(Json(cause))) = (row.try_get("backward")?, failure) {
            let told = row.try_get("told")?;
            let failed_before = row.try_get("failed_before")?;
            run.path = Path::Backward { cause, told, begun: false, failed_before, plan: None };
        }
        run.failed_children = children
            .map_or(vec![], |Json(children)| children.into_iter().map(ChildRow::into_failure).collect());
        Ok(Self {
            key,
            topic: row.try_get("topic")?,
            handler,
            payload: row.try_get("payload")?,
            attempts: row.try_get("attempts")?,
            retries: unsigned(row.try_get("retries")?),
            surroundings: Surroundings {
                has_parent: row.try_get("has_parent")?,
                undoing: row.try_get("undoing")?,
            },
            overdue: row.try_get("overdue")?,
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

/// The lineage of a run.
pub(crate) fn lineage(row: &PgRow) -> sqlx::Result<Lineage> {
    Lineage::from_ids(row.try_get("lineage")?)
        .ok_or_else(|| sqlx::Error::Decode("a run without a lineage".into()))
}

/// A failure that has to be on record.
pub(crate) fn failure(row: &PgRow, column: &str) -> sqlx::Result<Failure> {
    let failure: Option<Json<Failure>> = row.try_get(column)?;
    let unknown = || Failure::new("Unknown", "no failure is on record", "scoop");
    Ok(failure.map_or_else(unknown, |Json(failure)| failure))
}

/// A count as stored. No count is ever negative.
pub(crate) fn unsigned(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}

/// A count to be stored.
fn signed(count: impl TryInto<i32>) -> i32 {
    count.try_into().unwrap_or(i32::MAX)
}

/// What follows from one move of one run, as `run_settle.sql` takes it. What is not there is not
/// written: each byte is read twice.
#[derive(Debug, Serialize)]
pub(crate) struct Settlement {
    pub(super) root: Uuid,
    pub(super) id: Uuid,
    pub(super) epoch: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ends: Option<Ending>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_step: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) iteration: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) handler_iteration: Option<i32>,
    pub(super) suspensions: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outputs: Option<BTreeMap<String, Value>>,
    pub(super) backward: bool,
    pub(super) turns_back: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rollback_failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) forgets: Option<&'static str>,
    pub(super) event_count: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<EventRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) emissions: Vec<EmissionRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) told: Vec<ToldRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) told_because: Option<Failure>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) return_values: Vec<ValueRow>,
    pub(super) replied: bool,
    /// What travels with the run, if that has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<Context>,
    #[serde(serialize_with = "timestamps", skip_serializing_if = "Vec::is_empty")]
    pub(super) deadlines: Vec<OffsetDateTime>,
    /// Whether this is void if the run has to give up.
    pub(super) may_give_up: bool,
}

/// Something that a step returned or replied.
#[derive(Debug, Serialize)]
pub(super) struct ValueRow {
    pub(super) name: String,
    pub(super) value: Value,
}

/// How a run leaves the working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ending {
    /// Its parent has to take note of its failure first.
    Noted,
    /// At once.
    Unnoted,
}

/// An event, named after the columns.
#[derive(Debug, Serialize)]
pub(super) struct EventRow {
    /// How many events of the same settlement follow.
    pub(super) until_last: usize,
    pub(super) message_id: Uuid,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_step: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) handler_iteration: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exception: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detached_root: Option<Uuid>,
    /// That of an emission, if it is not the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<Context>,
}

/// A message to be published.
#[derive(Debug, Serialize)]
pub(super) struct EmissionRow {
    pub(super) at: usize,
    pub(super) id: Uuid,
    pub(super) topic: String,
    pub(super) payload: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detached_root: Option<Uuid>,
    /// If it is not the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<Context>,
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub(super) due: Option<OffsetDateTime>,
    #[serde(serialize_with = "timestamps", skip_serializing_if = "Vec::is_empty")]
    pub(super) deadlines: Vec<OffsetDateTime>,
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

/// A message whose handlers have to roll back.
#[derive(Debug, Serialize)]
pub(super) struct ToldRow {
    pub(super) at: usize,
    pub(super) message_id: Uuid,
}

impl Settlement {
    /// What follows for `before`, held under `key`, which has the context `stored` by the books.
    pub(crate) fn new(
        key: Key,
        before: &Run,
        (surroundings, stored): (Surroundings, &Context),
        conclusion: Conclusion,
    ) -> Self {
        let may_give_up = may_give_up(before, &conclusion.fate);
        let context = conclusion.context().unwrap_or(&before.context).clone();
        let undoing = surroundings.undoing || before.is_backward();
        let mut settlement = Self::of_fate(key, before, surroundings, conclusion.fate);
        settlement.may_give_up = may_give_up;
        settlement.deadlines = context.give_up_at(settlement.backward || undoing);
        let count = conclusion.events.len();
        settlement.event_count = count;
        let events = conclusion.events.into_iter().enumerate();
        settlement.events =
            events.map(|(at, event)| EventRow::new(count - at - 1, event, &context)).collect();
        let emissions = conclusion.emissions.into_iter().enumerate();
        settlement.emissions =
            emissions.map(|(at, emission)| EmissionRow::new(at, emission, undoing, &context)).collect();
        let told = conclusion.told.into_iter().enumerate();
        settlement.told = told.map(|(at, message_id)| ToldRow { at, message_id }).collect();
        settlement.told_because = conclusion.told_because;
        let values = conclusion.values.into_iter();
        settlement.return_values = values.map(|(name, value)| ValueRow { name, value }).collect();
        settlement.context = (context != *stored).then_some(context);
        settlement
    }

    /// Which run, and under which epoch.
    pub(crate) fn id(&self) -> (Uuid, i64) {
        (self.id, self.epoch)
    }

    /// Whether the short statements do for it.
    pub(crate) fn is_plain(&self) -> bool {
        Plain::of(self).is_some()
    }

    /// Whether something becomes due at a certain time because of this.
    pub(crate) fn sets_a_time(&self) -> bool {
        let of_emission = |row: &EmissionRow| row.due.is_some() || !row.deadlines.is_empty();
        !self.deadlines.is_empty() || self.emissions.iter().any(of_emission)
    }

    fn of_fate(key: Key, before: &Run, surroundings: Surroundings, fate: Fate) -> Self {
        let Surroundings { has_parent, .. } = surroundings;
        let had_failed_children = !before.failed_children.is_empty();
        let mut settlement = Self::untouched(key);
        settlement.forgets = had_failed_children.then_some("all");
        match fate {
            Fate::GoesOn(run) => {
                if had_failed_children && !run.failed_children.is_empty() {
                    settlement.forgets = Some("rolled back");
                }
                settlement.turns_back = !before.is_backward() && run.is_backward();
                settlement.stand(run);
            }
            Fate::Committed => settlement.ends = Some(Ending::Unnoted),
            Fate::RolledBack { cause, told } => {
                let noted = has_parent && !told;
                settlement.ends = Some(if noted { Ending::Noted } else { Ending::Unnoted });
                settlement.turns_back = !before.is_backward();
                settlement.backward = true;
                settlement.failure = Some(cause);
            }
            Fate::RollbackFailed { cause, failure, .. } => {
                settlement.ends = Some(if has_parent { Ending::Noted } else { Ending::Unnoted });
                settlement.turns_back = !before.is_backward();
                settlement.backward = true;
                settlement.failure = Some(cause);
                settlement.rollback_failure = Some(failure);
            }
            Fate::FailedAgain { .. } => unreachable!("there is nothing to write if it fails again"),
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
            return_values: vec![],
            replied: false,
            context: None,
            deadlines: vec![],
            may_give_up: false,
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
        self.replied = run.replied;
        self.outputs = (!run.outputs.is_empty()).then_some(run.outputs);
        if let Path::Backward { cause, .. } = run.path {
            self.backward = true;
            self.failure = Some(cause);
        }
    }
}

/// A failure goes on record in any case; whatever else follows is void if the run has to give up.
fn may_give_up(before: &Run, fate: &Fate) -> bool {
    match fate {
        Fate::GoesOn(run) => run.is_backward() == before.is_backward(),
        Fate::Committed => true,
        Fate::RolledBack { .. } => before.is_backward(),
        Fate::RollbackFailed { .. } | Fate::FailedAgain { .. } => false,
    }
}

impl EventRow {
    /// An event of a run that has this context then.
    fn new(until_last: usize, event: Event, context: &Context) -> Self {
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
            context: Some(event.context).filter(|own| own != context),
        }
    }

    pub(super) fn is(&self, kind: EventKind) -> bool {
        self.kind == kind.as_str()
    }

    /// Whether it carries nothing but what its run does.
    pub(super) fn is_the_runs(&self) -> bool {
        self.context.is_none() && self.detached_root.is_none() && self.exception.is_none()
    }
}

impl EmissionRow {
    /// An emission of a run that has this context then.
    fn new(at: usize, emission: Emission, undoing: bool, context: &Context) -> Self {
        let undoing = undoing && emission.detached_root.is_none();
        Self {
            at,
            id: emission.message,
            topic: emission.topic,
            payload: emission.payload,
            detached_root: emission.detached_root,
            due: emission.context.not_before(),
            deadlines: emission.context.give_up_at(undoing),
            context: Some(emission.context).filter(|own| own != context),
        }
    }
}

/// What became of a settlement that was applied.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    /// The run goes on at once, under the same claim.
    pub(crate) goes_on: bool,
    /// It has missed a deadline by now.
    pub(crate) overdue: bool,
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
            overdue: row.try_get("overdue")?,
            ended: state == "ended",
            last_event_at: row.try_get("last_event_at")?,
            started: row.try_get("started")?,
        };
        Ok(((row.try_get("id")?, row.try_get("epoch")?), settled))
    }
}
