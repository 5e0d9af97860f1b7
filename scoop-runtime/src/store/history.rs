//! The history of a run, read for its rollback.

use std::collections::BTreeMap;
use std::fmt::Display;

use scoop_core::{Beginning, Entry, RollbackNames, Run, Suspension, Window};
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::Tables;
use super::alone::Alone;
use super::rows::{StoredTime, unsigned};

/// The newest part of a history, or a window of it.
#[derive(Default)]
pub(crate) struct History {
    /// The newest suspension, of a step or of the rollback.
    pub(crate) last: Option<Suspension>,
    /// Whether a part of the rollback was done already.
    pub(crate) any_part_done: bool,
    /// The window that the newest part is in, if the history is long.
    pub(crate) window: Option<Window>,
    /// The entries of that window; without one, the newest entries.
    pub(crate) entries: Vec<Entry>,
    /// The outputs of the steps, if there are no more entries.
    pub(crate) outputs: BTreeMap<String, Value>,
}

/// The requested values of a run.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// The values of these names.
    pub(crate) names: Vec<String>,
    /// Of each of these ranges, from a name to another of the same length, the one with the last name.
    pub(crate) newest: Vec<(String, String)>,
}

impl Tables {
    /// The history of a run: its newest suspension, and up to `limit` entries. The entries of a recorded window are all
    /// returned.
    pub(crate) async fn history(
        &self,
        names: &RollbackNames,
        handler: &str,
        run: &Run,
        limit: usize,
    ) -> sqlx::Result<History> {
        let rows = self.read_history(names, handler, run, limit, None).await?;
        let mut history = History::default();
        for row in &rows {
            match read_entry(row)? {
                Some(entry) => history.entries.push(entry),
                None => history.take_newest(row)?,
            }
        }
        Ok(history)
    }

    /// The newest entries of a run's forward path, up to `until`.
    pub(crate) async fn entries_until(
        &self,
        names: &RollbackNames,
        handler: &str,
        run: &Run,
        limit: usize,
        until: i64,
    ) -> sqlx::Result<Vec<Entry>> {
        let rows = self.read_history(names, handler, run, limit, Some(until)).await?;
        Ok(rows.iter().map(read_entry).collect::<sqlx::Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    async fn read_history(
        &self,
        names: &RollbackNames,
        handler: &str,
        run: &Run,
        limit: usize,
        until: Option<i64>,
    ) -> sqlx::Result<Vec<PgRow>> {
        sqlx::query(self.sql.run_history.clone())
            .bind(run.lineage.id())
            .bind(handler)
            .bind(names.prefix())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(until.map(time_of).transpose()?)
            .all(&self.sessions)
            .await
    }

    /// The counts of a run's history, up to `until`. Reads all of it.
    pub(crate) async fn count_history(
        &self,
        handler: &str,
        run: &Run,
        until: i64,
    ) -> sqlx::Result<Beginning> {
        let counts: Vec<(String, i64, i64, Option<String>)> = sqlx::query_as(self.sql.run_counts.clone())
            .bind(run.lineage.id())
            .bind(handler)
            .bind(time_of(until)?)
            .all(&self.sessions)
            .await?;
        let mut beginning = Beginning { until, instances: 0, runs: BTreeMap::new(), newest: None };
        for (step, instances, runs, unfit) in counts {
            if let Some(event) = unfit {
                return Err(outside_of_time(&event));
            }
            beginning.instances += counted(instances);
            beginning.runs.insert(step, counted(runs));
        }
        Ok(beginning)
    }

    /// How often in a row the step of these names completed in a run, up to `until`.
    pub(crate) async fn repetitions(
        &self,
        handler: &str,
        run: &Run,
        steps: &[String],
        until: i64,
    ) -> sqlx::Result<u32> {
        let count = sqlx::query_scalar(self.sql.run_repetitions.clone())
            .bind(run.lineage.id())
            .bind(handler)
            .bind(time_of(until)?)
            .bind(steps);
        Ok(counted(count.one(&self.sessions).await?))
    }

    /// The outputs of a run's steps, by name.
    pub(crate) async fn values(
        &self,
        handler: &str,
        run: &Run,
        wanted: &Wanted,
    ) -> sqlx::Result<BTreeMap<String, Value>> {
        let ranges = wanted.newest.iter();
        let values: Vec<(String, Value)> = sqlx::query_as(self.sql.run_values.clone())
            .bind(run.lineage.id())
            .bind(handler)
            .bind(&wanted.names)
            .bind(ranges.clone().map(|(first, _)| &**first).collect::<Vec<_>>())
            .bind(ranges.map(|(_, last)| &**last).collect::<Vec<_>>())
            .all(&self.sessions)
            .await?;
        Ok(values.into_iter().collect())
    }

    /// Whether an operator wants the newest part of a rollback to run again.
    pub(crate) async fn repeats(&self, run: &Run) -> sqlx::Result<bool> {
        sqlx::query_scalar(self.sql.run_repeats.clone()).bind(run.lineage.id()).one(&self.sessions).await
    }
}

impl History {
    fn take_newest(&mut self, row: &PgRow) -> sqlx::Result<()> {
        let handler_iteration: Option<i32> = row.try_get("handling")?;
        self.last = Some(Suspension {
            step: row.try_get("step")?,
            jump: row.try_get("jump")?,
            iteration: 0,
            handler_iteration: handler_iteration.map(unsigned),
        });
        self.any_part_done = row.try_get("any_part_done")?;
        let window: Option<String> = row.try_get("bounds")?;
        self.window = window.map(|window| Window::read(&window)).transpose().map_err(unreadable)?;
        let outputs: Option<Json<BTreeMap<String, Value>>> = row.try_get("outputs")?;
        self.outputs = outputs.map(|Json(outputs)| outputs).unwrap_or_default();
        Ok(())
    }
}

/// An entry of the forward path; `None` for the newest suspension.
fn read_entry(row: &PgRow) -> sqlx::Result<Option<Entry>> {
    let Some(at) = row.try_get::<Option<StoredTime>, _>("created_at")? else {
        return Ok(None);
    };
    let at = match at.exact() {
        Some(at) => at,
        None => return Err(outside_of_time(row.try_get::<Uuid, _>("id")?)),
    };
    if let Some(message) = row.try_get::<Option<Uuid>, _>("emitted")? {
        return Ok(Some(Entry::Emitted(message)));
    }
    let handler_iteration: Option<i32> = row.try_get("handling")?;
    let handler_iteration = handler_iteration.map(unsigned);
    let (step, definition) = (row.try_get("step")?, row.try_get("definition")?);
    Ok(Some(Entry::Suspended { step, handler_iteration, definition, at: micros_of(at) }))
}

/// The error for an event whose time no program knows. The order of the events would be that of their times.
pub(super) fn outside_of_time(event: impl Display) -> sqlx::Error {
    sqlx::Error::Decode(format!("the time of event {event} is outside the years 1 to 9999").into())
}

/// In microseconds since 1970.
pub(super) fn micros_of(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

fn time_of(micros: i64) -> sqlx::Result<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000).map_err(unreadable)
}

pub(super) fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

fn counted(stored: i64) -> u32 {
    u32::try_from(stored).unwrap_or(u32::MAX)
}
