//! The history of a run, read for its rollback.

use std::collections::BTreeMap;
use std::fmt::Display;

use scoop_core::{Beginning, Entry, EventKind, RollbackNames, Run, Suspension, Window};
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::decode::{failure, unsigned};
use super::query_ext::FetchExt;
use crate::model::children::{ChildQuery, Launches, chosen};
use crate::model::stored_time::StoredTime;
use crate::store::types::{micros_of, unreadable};
use crate::store::{ClaimKey, ExecutionHistory, HistoryStorage, RollbackHistory, ValueQuery};
use crate::{Child, ChildOutcome};

impl HistoryStorage for PostgresStore {
    async fn recorded(&self, run: ClaimKey, identifier: &str, kind: EventKind) -> sqlx::Result<bool> {
        let recorded = sqlx::query_scalar(self.sql.run_is_recorded.clone()).bind(run.id).bind(identifier);
        recorded.bind(kind.as_str()).one(&self.sessions).await
    }

    async fn history(
        &self,
        names: &RollbackNames,
        handler: &str,
        run: &Run,
        limit: usize,
    ) -> sqlx::Result<RollbackHistory> {
        let rows = self.read_history(names, handler, run, limit, None).await?;
        let mut history = RollbackHistory::default();
        for row in &rows {
            match read_entry(row)? {
                Some(entry) => history.entries.push(entry),
                None => history.take_newest(row)?,
            }
        }
        Ok(history)
    }

    async fn entries_until(
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

    async fn count_history(&self, handler: &str, run: &Run, until: i64) -> sqlx::Result<Beginning> {
        let counts: Vec<(String, i64, i64, Option<String>)> =
            sqlx::query_as(self.sql.run_count_parts.clone())
                .bind(run.lineage.id())
                .bind(handler)
                .bind(time_of(until)?)
                .bind(began_at(run)?)
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

    async fn repetitions(&self, handler: &str, run: &Run, steps: &[String], until: i64) -> sqlx::Result<u32> {
        let count = sqlx::query_scalar(self.sql.run_count_repetitions.clone())
            .bind(run.lineage.id())
            .bind(handler)
            .bind(time_of(until)?)
            .bind(steps)
            .bind(began_at(run)?);
        Ok(counted(count.one(&self.sessions).await?))
    }

    async fn values(
        &self,
        handler: &str,
        run: &Run,
        wanted: &ValueQuery,
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

    async fn reruns_part(&self, run: &Run) -> sqlx::Result<bool> {
        sqlx::query_scalar(self.sql.run_needs_rerun.clone()).bind(run.lineage.id()).one(&self.sessions).await
    }

    async fn children(&self, asked: ChildQuery<'_>) -> sqlx::Result<Vec<Child>> {
        let ChildQuery { of, topic, replies } = asked;
        let (messages, run, last_step, unseen, after) = match of {
            Launches::OfLastStep { run, handler, unseen } => (None, Some((run, handler)), true, unseen, None),
            Launches::OfRun { run, handler, after } => (None, Some((run, handler)), false, &[][..], after),
            Launches::Given(messages) => (Some(messages), None, false, &[][..], None),
        };
        let (run, handler) = run.unzip();
        let rows = sqlx::query(self.sql.run_children.clone())
            .bind(messages)
            .bind(run)
            .bind(handler)
            .bind(last_step)
            .bind(unseen)
            .bind(topic)
            .bind(replies.is_some())
            .bind(after.map(time_of).transpose()?)
            .all(&self.sessions)
            .await?;
        rows.iter().map(|row| Child::from_row(row, replies)).collect()
    }
}

impl PostgresStore {
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
}

impl RollbackHistory {
    fn take_newest(&mut self, row: &PgRow) -> sqlx::Result<()> {
        let handler_iteration: Option<i32> = row.try_get("handling")?;
        self.progress.last = Some(Suspension {
            step: row.try_get("step")?,
            jump: row.try_get("jump")?,
            iteration: 0,
            handler_iteration: handler_iteration.map(unsigned),
        });
        self.progress.has_begun = row.try_get("has_begun")?;
        let window: Option<String> = row.try_get("bounds")?;
        self.window = window.map(|window| Window::read(&window)).transpose().map_err(unreadable)?;
        let outputs: Option<Json<BTreeMap<String, Value>>> = row.try_get("outputs")?;
        self.outputs = outputs.map(|Json(outputs)| outputs).unwrap_or_default();
        if let Some(began_at) = row.try_get::<Option<StoredTime>, _>("began_at")? {
            let former: Option<i32> = row.try_get("former")?;
            let number: Option<i32> = row.try_get("execution")?;
            self.execution = Some(ExecutionHistory {
                after: micros_of(began_at.time()),
                suspensions: former.map_or(0, unsigned),
                number: number.map_or(0, unsigned),
                payload: row.try_get::<Option<Value>, _>("payload")?.unwrap_or_default(),
            });
        }
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
    let by_strategy = row.try_get::<Option<bool>, _>("by_strategy")?.unwrap_or_default();
    Ok(Some(Entry::Suspended { step, handler_iteration, definition, by_strategy, at: micros_of(at) }))
}

/// After what time the history of the newest execution begins.
fn began_at(run: &Run) -> sqlx::Result<Option<OffsetDateTime>> {
    run.execution.after.map(time_of).transpose()
}

fn time_of(micros: i64) -> sqlx::Result<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000).map_err(unreadable)
}

fn counted(stored: i64) -> u32 {
    u32::try_from(stored).unwrap_or(u32::MAX)
}

impl Child {
    /// Decodes a row of `run_children.sql`, with the replies of that name.
    pub(crate) fn from_row(row: &PgRow, replies: Option<&str>) -> sqlx::Result<Self> {
        let reply_name = replies.unwrap_or_default();
        let ended: Option<String> = row.try_get("ended")?;
        let lineage: Option<Vec<Uuid>> = row.try_get("lineage")?;
        let outcome = match ended.as_deref() {
            Some("COMMITTED") => ChildOutcome::Committed,
            Some("ROLLED_BACK") => ChildOutcome::RolledBack(failure(row, "cause")?),
            Some("ROLLBACK_FAILED") => {
                let (cause, failure) = (failure(row, "cause")?, failure(row, "exception")?);
                ChildOutcome::RollbackFailed { cause, failure }
            }
            _ if lineage.is_none() => ChildOutcome::NeverStarted,
            _ => ChildOutcome::Unfinished,
        };
        let names: Option<Vec<String>> = row.try_get("names")?;
        let values: Option<Vec<Value>> = row.try_get("values")?;
        let replies = names.unwrap_or_default().into_iter().zip(values.unwrap_or_default());
        let handled: Option<bool> = row.try_get("handled")?;
        Ok(Self {
            handler: row.try_get("handler")?,
            topic: row.try_get("topic")?,
            message_id: row.try_get("message_id")?,
            payload: row.try_get::<Option<Value>, _>("payload")?.unwrap_or_default(),
            handled: handled == Some(true) && outcome.failure().is_some(),
            outcome,
            replies: chosen(replies.collect(), reply_name),
        })
    }
}

/// The error for an event whose time no program knows. The order of the events would be that of their times.
pub(super) fn outside_of_time(event: impl Display) -> sqlx::Error {
    sqlx::Error::Decode(format!("the time of event {event} is outside the years 1 to 9999").into())
}
