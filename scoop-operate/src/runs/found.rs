//! Runs that are found by the fields of their messages.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use scoop_core::{FindKind, find_time};
use scoop_runtime::internal::{FetchExt as _, StoredTime, stored_time};
use serde::Serialize;
use serde_json::{Number, Value};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::filter::{PageSize, RunFilter};
use super::rows::{names, outcome, read_finished, read_unfinished, stored};
use super::{RunPage, RunSummary, Runs};
use crate::OperateError;
use crate::cursor::{FoundPosition, PageStart, RunCursor};
use crate::database::Database;
use crate::statements::{
    FIND_FIELD_LIST, FOUND_BY_ANY, FOUND_BY_COUNTS, RUN_FOUND_FINISHED, RUN_FOUND_UNFINISHED, RUN_PAGE_FOUND,
};

/// Up to how many messages with a value are counted, to order a list by the field that fewest have.
const COUNTED_MAX: usize = 1_000;

/// A value to find runs by: a text, a number or a time. A text is no number.
///
/// ```
/// # use scoop_operate::FindValue;
/// use std::time::SystemTime;
///
/// let values: [FindValue; 3] = ["ada".into(), 2167.into(), SystemTime::UNIX_EPOCH.into()];
/// assert_ne!(FindValue::from("2167"), values[1]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FindValue(Vec<Value>);

impl FindValue {
    /// The value that a person has written: this text, and if it can be read so, this number or this time.
    ///
    /// ```
    /// # use scoop_operate::FindValue;
    /// assert_ne!(FindValue::written("2167"), FindValue::from("2167")); // it is also the number
    /// assert_eq!(FindValue::written("ada"), FindValue::from("ada"));
    /// ```
    pub fn written(text: &str) -> Self {
        let number = text.parse::<Number>().ok().map(Value::Number);
        let time = OffsetDateTime::parse(text, &Rfc3339).ok().and_then(find_time).map(Value::String);
        let mut values = vec![Value::String(text.to_owned())];
        values.extend(number);
        values.extend(time.filter(|time| *time != values[0]));
        Self(values)
    }
}

impl From<&str> for FindValue {
    fn from(text: &str) -> Self {
        Self(vec![text.into()])
    }
}

impl From<String> for FindValue {
    fn from(text: String) -> Self {
        Self(vec![text.into()])
    }
}

impl From<Uuid> for FindValue {
    fn from(id: Uuid) -> Self {
        Self(vec![id.to_string().into()])
    }
}

impl From<SystemTime> for FindValue {
    /// A time that no message can have is the value of none.
    fn from(time: SystemTime) -> Self {
        Self(find_time(time.into()).map(Value::String).into_iter().collect())
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl From<$number> for FindValue {
            fn from(number: $number) -> Self {
                Self(vec![number.into()])
            }
        })*
    };
}

numbers!(i32, i64, u32, u64, f64);

/// A field by which runs are found, and its values.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FieldFilter {
    name: String,
    values: Vec<Value>,
}

impl FieldFilter {
    pub(super) fn new(name: impl Into<String>, value: impl Into<FindValue>) -> Self {
        Self { name: name.into(), values: value.into().0 }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn values(&self) -> Vec<Json<&Value>> {
        self.values.iter().map(Json).collect()
    }
}

/// A field by which a run is found, as lists show it. Display it as `order=2167`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundBy {
    /// The name of the field.
    pub name: String,
    /// Its value: a time in UTC. `[redacted]` if a program [redacts](scoop_core::Message::REDACTED) fields of this name.
    pub value: String,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl FoundBy {
    /// Those of a row.
    pub(super) fn of(row: &PgRow) -> sqlx::Result<Vec<Self>> {
        let shown: Option<Json<Vec<(String, String)>>> = row.try_get("found_by")?;
        let shown = shown.map_or(vec![], |Json(shown)| shown);
        Ok(shown.into_iter().map(|(name, value)| Self { name, value }).collect())
    }
}

/// A field by which messages of a topic are found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FindField {
    /// The topic.
    pub topic: String,
    /// The name of the field.
    pub name: String,
    /// How its values are compared: `text`, `number` or `time`.
    pub kind: &'static str,
}

impl Runs {
    /// The fields by which runs can be found, by topic, as programs with sagas have registered them for the messages that they handle.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for field in scoop.operate().runs().find_fields().await? {
    ///     println!("messages of {} are found by their {} {}", field.topic, field.kind, field.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn find_fields(&self) -> Result<Vec<FindField>, OperateError> {
        let database = self.operate.database();
        database.read_retrying("fields to find by were listed", |_| database.find_fields()).await
    }

    /// The names of the registered fields in which a message has this value.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::{FindValue, OperateExt as _};
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for name in scoop.operate().runs().fields_with(&FindValue::written("2167")).await? {
    ///     println!("there are runs with the {name} 2167");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn fields_with(&self, value: &FindValue) -> Result<Vec<String>, OperateError> {
        let database = self.operate.database();
        database.read_retrying("a value to find by was looked up", |_| database.fields_with(value)).await
    }
}

/// The runs of some messages, in the order of the list.
struct FoundRuns {
    positions: Vec<FoundPosition>,
    roots: Vec<Uuid>,
    runs: Vec<Uuid>,
    /// How many messages were read.
    messages: usize,
}

impl FoundRuns {
    fn of(rows: &[PgRow], field: u8) -> sqlx::Result<Self> {
        let mut found = Self { positions: vec![], roots: vec![], runs: vec![], messages: 0 };
        for row in rows {
            // A message without a run has a row, too.
            let run = row.try_get::<Option<Uuid>, _>("id")?.unwrap_or_default();
            let message: Uuid = row.try_get("found")?;
            if found.positions.last().is_none_or(|last| last.found != message) {
                found.messages += 1;
            }
            let launched_at: StoredTime = stored_time(row, "launched_at")?;
            found.positions.push(FoundPosition { field, launched_at, found: message, run });
            found.roots.push(row.try_get("root")?);
            found.runs.push(run);
        }
        Ok(found)
    }
}

/// The fields of a list, of which one orders it.
pub(super) struct Ordered<'a> {
    fields: &'a [FieldFilter],
    by: u8,
}

impl<'a> Ordered<'a> {
    fn first(&self) -> Option<&'a FieldFilter> {
        self.fields.get(usize::from(self.by))
    }

    /// The field that orders the list, with its values.
    pub(super) fn first_values(&self) -> (Option<&'a str>, Vec<Json<&'a Value>>) {
        let first = self.first();
        (first.map(FieldFilter::name), first.map(FieldFilter::values).unwrap_or_default())
    }

    /// All but the one that orders the list.
    pub(super) fn others(&self) -> Json<Vec<&'a FieldFilter>> {
        let others = self.fields.iter().enumerate().filter(|(at, _)| *at != usize::from(self.by));
        Json(others.map(|(_, field)| field).collect())
    }
}

/// The page of the runs that are found by these fields.
pub(super) async fn read(
    database: &Database,
    filter: &RunFilter,
    after: Option<PageStart>,
    size: PageSize,
) -> Result<RunPage, OperateError> {
    let after = match after {
        Some(PageStart::Found(found)) => Some(found),
        _ => None,
    };
    database.read_retrying("runs were listed", |_| database.found_page(filter, after, size)).await
}

impl Database {
    async fn found_page(
        &self,
        filter: &RunFilter,
        after: Option<FoundPosition>,
        size: PageSize,
    ) -> sqlx::Result<RunPage> {
        let by = match after {
            Some(at) if usize::from(at.field) < filter.fields.len() => at.field,
            _ => self.rarest(&filter.fields).await?,
        };
        let ordered = Ordered { fields: &filter.fields, by };
        let Some(first) = ordered.first() else { return Ok(RunPage { runs: vec![], next: None }) };
        let rows = sqlx::query(self.text(RUN_PAGE_FOUND))
            .bind(first.name())
            .bind(first.values())
            .bind(after.map(|at| at.launched_at))
            .bind(after.map(|at| at.found))
            .bind(stored(size.reads))
            .bind(after.map(|at| at.run))
            .bind(stored(size.reads))
            .bind(filter.has_unfinished())
            .bind(!filter.ends().is_empty())
            .all(self.sessions())
            .await?;
        let found = FoundRuns::of(&rows, by)?;
        let (mut runs, mut last) = (vec![], None);
        // Mostly the first of them fill the page, and the others need not be described.
        let first = found.positions.len().min(2 * size.runs);
        for part in [0..first, first..found.positions.len()] {
            let mut fitting = self.fitting(filter, &ordered, &found, part.clone()).await?;
            for at in found.positions.get(part).unwrap_or_default() {
                if runs.len() == size.runs {
                    return Ok(RunPage { runs, next: last.map(|at| RunCursor(PageStart::Found(at))) });
                }
                runs.extend(fitting.remove(&at.run));
                last = Some(*at);
            }
        }
        let is_more = found.positions.len() >= size.reads || found.messages >= size.reads;
        Ok(RunPage { runs, next: last.filter(|_| is_more).map(|at| RunCursor(PageStart::Found(at))) })
    }

    /// Those of a part of these runs that the filter admits.
    async fn fitting(
        &self,
        filter: &RunFilter,
        ordered: &Ordered<'_>,
        found: &FoundRuns,
        part: Range<usize>,
    ) -> sqlx::Result<HashMap<Uuid, RunSummary>> {
        let (roots, runs) = (found.roots.get(part.clone()), found.runs.get(part));
        let ids = (roots.unwrap_or_default(), runs.unwrap_or_default());
        if ids.1.is_empty() {
            return Ok(HashMap::new());
        }
        // In this order: a run that ends meanwhile is found among those that have ended.
        let mut fitting = self.found_unfinished(filter, ordered, ids).await?;
        for (run, summary) in self.found_finished(filter, ordered, ids).await? {
            fitting.entry(run).or_insert(summary);
        }
        Ok(fitting)
    }

    /// The number of the field with whose value the fewest messages are.
    pub(super) async fn rarest(&self, fields: &[FieldFilter]) -> sqlx::Result<u8> {
        if fields.len() < 2 {
            return Ok(0);
        }
        let counts = sqlx::query(self.text(FOUND_BY_COUNTS)).bind(Json(fields)).bind(stored(COUNTED_MAX));
        let counts = counts.all(self.sessions()).await?;
        let counts: Vec<i64> = counts.iter().map(|row| row.try_get("count")).collect::<sqlx::Result<_>>()?;
        let rarest = counts.iter().enumerate().min_by_key(|(_, count)| **count);
        Ok(rarest.and_then(|(at, _)| u8::try_from(at).ok()).unwrap_or_default())
    }

    async fn found_unfinished(
        &self,
        filter: &RunFilter,
        ordered: &Ordered<'_>,
        (roots, runs): (&[Uuid], &[Uuid]),
    ) -> sqlx::Result<HashMap<Uuid, RunSummary>> {
        if !filter.has_unfinished() {
            return Ok(HashMap::new());
        }
        let rows = sqlx::query(self.text(RUN_FOUND_UNFINISHED))
            .bind(roots)
            .bind(runs)
            .bind(&filter.handler)
            .bind(&filter.topic)
            .bind(names(filter.phases.iter().map(|phase| phase.name())))
            .bind(ordered.others())
            .bind(filter.since)
            .bind(filter.until)
            .bind(&filter.code)
            .bind(names(filter.waits.iter().map(|wait| wait.name())))
            .bind(filter.lineage_max())
            .all(self.sessions())
            .await?;
        rows.iter().filter_map(|row| read_unfinished(filter, row).transpose()).collect()
    }

    async fn found_finished(
        &self,
        filter: &RunFilter,
        ordered: &Ordered<'_>,
        (roots, runs): (&[Uuid], &[Uuid]),
    ) -> sqlx::Result<HashMap<Uuid, RunSummary>> {
        if filter.ends().is_empty() {
            return Ok(HashMap::new());
        }
        let rows = sqlx::query(self.text(RUN_FOUND_FINISHED))
            .bind(roots)
            .bind(runs)
            .bind(&filter.handler)
            .bind(&filter.topic)
            .bind(filter.ends().into_iter().map(outcome).collect::<Vec<_>>())
            .bind(ordered.others())
            .bind(filter.since)
            .bind(filter.until)
            .bind(&filter.code)
            .bind(filter.lineage_max())
            .all(self.sessions())
            .await?;
        let runs = rows.iter().filter_map(|row| read_finished(filter, row).transpose());
        runs.map(|run| run.map(|((_, id), run)| (id, run))).collect()
    }

    async fn find_fields(&self) -> sqlx::Result<Vec<FindField>> {
        let rows = sqlx::query(self.text(FIND_FIELD_LIST)).all(self.sessions()).await?;
        let read = |row: &PgRow| -> sqlx::Result<Option<FindField>> {
            // A later version may have another kind.
            let kind = FindKind::named(row.try_get("kind")?).map(FindKind::name);
            let (topic, name) = (row.try_get("topic")?, row.try_get("name")?);
            Ok(kind.map(|kind| FindField { topic, name, kind }))
        };
        rows.iter().filter_map(|row| read(row).transpose()).collect()
    }

    async fn fields_with(&self, value: &FindValue) -> sqlx::Result<Vec<String>> {
        let values: Vec<_> = value.0.iter().map(Json).collect();
        let rows = sqlx::query(self.text(FOUND_BY_ANY)).bind(values).all(self.sessions()).await?;
        rows.iter().map(|row| row.try_get("name")).collect()
    }

    /// The field by which runs are counted that are found by all of these.
    pub(super) async fn ordered<'a>(&self, fields: &'a [FieldFilter]) -> sqlx::Result<Ordered<'a>> {
        Ok(Ordered { fields, by: self.rarest(fields).await? })
    }
}
