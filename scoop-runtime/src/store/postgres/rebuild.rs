//! Rebuilds the working set from the recorded events. A hierarchy that cannot be rebuilt keeps its rows, and the others
//! are rebuilt.

use crate::store::RebuildStorage;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt;
use scoop_core::{Context, EventKind, read_output_name};
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Acquire, PgConnection, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::decode::{lineage, time, time_if_any, unsigned};
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use super::rollback_history::outside_of_time;
use crate::error::is_of_contents;
use crate::rebuild::{
    OperatorAction, RebuildReport, Rebuilt, RecordedEvent, RecordedExecution, SkippedHierarchy,
    SubscriptionPeriod, newest_outputs, rebuild, root_of,
};
use crate::repair::RepairAction;
use crate::util::patience::note;

/// The number of runs written by one statement.
const BATCH_MAX: usize = 1_000;

/// Why hierarchies cannot be rebuilt.
type Reasons = BTreeMap<Uuid, String>;

/// One attempt to rebuild the working set.
struct Pass {
    before: u64,
    after: u64,
    at_fault: Reasons,
}

impl RebuildStorage for PostgresStore {
    async fn rebuild(&self) -> sqlx::Result<Result<RebuildReport, i64>> {
        let mut skipped = BTreeMap::new();
        loop {
            match self.rebuild_but(&skipped).await? {
                Ok(Pass { before, after, at_fault }) if at_fault.is_empty() => {
                    let skipped = skipped.into_iter();
                    let skipped =
                        skipped.map(|(id, reason)| SkippedHierarchy { hierarchy: id.into(), reason });
                    return Ok(Ok(RebuildReport { before, after, skipped: skipped.collect() }));
                }
                Ok(Pass { at_fault, .. }) => skipped.extend(at_fault),
                Err(alive) => return Ok(Err(alive)),
            }
        }
    }
}

impl PostgresStore {
    /// The same, without these hierarchies. If others are at fault, nothing has changed.
    async fn rebuild_but(&self, skipped: &Reasons) -> sqlx::Result<Result<Pass, i64>> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        // It idles while a hierarchy is read on another connection, however long that takes.
        sqlx::raw_sql("SET LOCAL idle_in_transaction_session_timeout = 0").execute(&mut *tx).await?;
        // Before the lock: those that wait for it may hold all other connections.
        let mut reader = self.sessions.reader().await?;
        sqlx::query(self.sql.rebuild_lock.clone()).execute(&mut *tx).await?;
        let alive: i64 = sqlx::query_scalar(self.sql.worker_count_alive.clone()).one_on(&mut tx).await?;
        if alive > 0 {
            return Ok(Err(alive));
        }
        let roots: Vec<_> = skipped.keys().copied().collect();
        let cleared = sqlx::query(self.sql.rebuild_clear.clone()).bind(roots).fetch_one(&mut *tx).await?;
        let [cleared, kept] = [cleared.try_get("cleared")?, cleared.try_get("kept")?].map(i64::cast_unsigned);
        let mut pass = Pass { before: cleared + kept, after: kept, at_fault: Reasons::new() };
        self.rebuild_all(&mut tx, &mut reader, skipped, &mut pass).await?;
        match pass.at_fault.is_empty() {
            true => tx.commit().await.inspect_err(note)?,
            false => tx.rollback().await?,
        }
        Ok(Ok(pass))
    }

    /// Rebuilds hierarchy by hierarchy. The events are streamed on another connection.
    async fn rebuild_all(
        &self,
        tx: &mut PgConnection,
        reader: &mut PgConnection,
        skipped: &Reasons,
        pass: &mut Pass,
    ) -> sqlx::Result<()> {
        let topology = sqlx::query(self.sql.handler_list_all.clone()).fetch_all(&mut *tx).await?;
        let topology = topology.iter().map(read_listened).collect::<sqlx::Result<Vec<_>>>()?;
        let now: OffsetDateTime = sqlx::query_scalar("SELECT clock_timestamp()").one_on(&mut *tx).await?;
        let mut events = sqlx::query(self.sql.rebuild_events.clone()).fetch(reader);
        let (mut hierarchy, mut rebuilt): (Vec<RecordedEvent>, Vec<Rebuilt>) = Default::default();
        loop {
            let next = match events.try_next().await? {
                Some(row) => {
                    let root = row.try_get("root")?;
                    if skipped.contains_key(&root) || pass.at_fault.contains_key(&root) {
                        continue;
                    }
                    match read_recorded(&row) {
                        Ok(recorded) => Some(recorded),
                        Err(error) => {
                            hierarchy.retain(|recorded| root_of(recorded) != root);
                            pass.at_fault.insert(root, format!("an event cannot be read: {error}"));
                            continue;
                        }
                    }
                }
                None => None,
            };
            let ends = match (&next, hierarchy.first()) {
                (Some(next), Some(first)) => root_of(next) != root_of(first),
                (next, _) => next.is_none(),
            };
            if ends {
                match self.revivals(tx, &hierarchy).await {
                    Ok(revivals) => rebuilt.extend(rebuild(&hierarchy, &revivals, &topology, now)),
                    Err(error) if is_of_contents(&error) => {
                        let root = hierarchy.first().map(root_of);
                        let reason = format!("a decision of an operator cannot be read: {error}");
                        pass.at_fault.extend(root.map(|root| (root, reason)));
                    }
                    Err(error) => return Err(error),
                }
                hierarchy.clear();
            }
            if rebuilt.len() >= BATCH_MAX || next.is_none() {
                self.write_apart(tx, std::mem::take(&mut rebuilt), pass).await?;
            }
            match next {
                Some(next) => hierarchy.push(next),
                None => return Ok(()),
            }
        }
    }

    /// Writes these runs. A part that the database refuses is halved, until the hierarchy at fault is alone.
    async fn write_apart(
        &self,
        tx: &mut PgConnection,
        rebuilt: Vec<Rebuilt>,
        pass: &mut Pass,
    ) -> sqlx::Result<()> {
        let mut parts = vec![rebuilt];
        while let Some(mut part) = parts.pop() {
            let mut savepoint = tx.begin().await?;
            match self.write_rebuilt(&mut savepoint, &mut part).await {
                Ok(written) => {
                    savepoint.commit().await?;
                    pass.after += written;
                }
                Err(error) if is_of_contents(&error) => {
                    savepoint.rollback().await?;
                    let roots: BTreeSet<_> = part.iter().map(Rebuilt::root).collect();
                    match roots.iter().nth(roots.len() / 2).filter(|_| roots.len() > 1) {
                        Some(middle) => {
                            let (second, first) = part.into_iter().partition(|run| run.root() >= *middle);
                            parts.extend([second, first]);
                        }
                        None => pass.at_fault.extend(
                            roots
                                .into_iter()
                                .map(|root| (root, format!("the database refuses a run: {error}"))),
                        ),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The interventions in a hierarchy with a failed rollback.
    async fn revivals(
        &self,
        tx: &mut PgConnection,
        hierarchy: &[RecordedEvent],
    ) -> sqlx::Result<Vec<OperatorAction>> {
        let Some(failed) = hierarchy.iter().find(|row| row.kind == EventKind::RollbackFailed) else {
            return Ok(vec![]);
        };
        let rows =
            sqlx::query(self.sql.intervention_list.clone()).bind(root_of(failed)).fetch_all(tx).await?;
        let read = |row: &PgRow| {
            let kind: &str = row.try_get("kind")?;
            let resolves = kind == RepairAction::Resolve.as_str();
            Ok(OperatorAction { run: row.try_get("run")?, at: time(row, "requested_at")?, resolves })
        };
        rows.iter().map(read).collect()
    }

    async fn write_rebuilt(&self, tx: &mut PgConnection, rebuilt: &mut [Rebuilt]) -> sqlx::Result<u64> {
        for run in rebuilt.iter_mut().filter(|run| run.keeps_outputs()) {
            let values: Vec<(String, Value)> = sqlx::query_as(self.sql.run_outputs.clone())
                .bind(run.lineage.last())
                .bind(&run.handler)
                .bind(&run.output_names)
                .all_on(&mut *tx)
                .await?;
            run.replied = values.iter().any(|(name, _)| read_output_name(name).is_none());
            run.apply_delivery(|awaited| values.iter().any(|(name, _)| name == awaited));
            run.outputs = newest_outputs(values, &run.signal_steps);
        }
        let written = sqlx::query(self.sql.rebuild_insert.clone()).bind(Json(&*rebuilt)).execute(tx).await?;
        Ok(written.rows_affected())
    }
}

fn read_recorded(row: &PgRow) -> sqlx::Result<RecordedEvent> {
    let kind: String = row.try_get("type")?;
    let kind = EventKind::from_name(&kind)
        .ok_or_else(|| sqlx::Error::Decode(format!("an event of the unknown type `{kind}`").into()))?;
    if !row.try_get::<bool, _>("has_times")? {
        return Err(outside_of_time(row.try_get::<Uuid, _>("id")?));
    }
    let context: Option<Json<Context>> = row.try_get("context")?;
    Ok(RecordedEvent {
        lineage: lineage(row)?,
        message: row.try_get("message_id")?,
        kind,
        handler: row.try_get("handler")?,
        topic: row.try_get("topic")?,
        step: row.try_get("step")?,
        jump: row.try_get("jump")?,
        definition: row.try_get("definition")?,
        handling: row.try_get("handling")?,
        exception: row.try_get("exception")?,
        context: context.map(|Json(context)| context).unwrap_or_default(),
        at: time(row, "created_at")?,
        redelivered_at: time_if_any(row, "redelivered_at")?,
        wait: row.try_get::<Option<Json<_>>, _>("wait")?.map(|Json(wait)| wait),
        begins: read_execution(row)?,
    })
}

/// The execution that begins after the event.
fn read_execution(row: &PgRow) -> sqlx::Result<Option<RecordedExecution>> {
    let Some(number) = row.try_get("execution")? else {
        return Ok(None);
    };
    let (message, suspensions) = (row.try_get("execution_message")?, row.try_get("execution_suspensions")?);
    Ok(Some(RecordedExecution { number, message, suspensions: unsigned(suspensions) }))
}

fn read_listened(row: &PgRow) -> sqlx::Result<SubscriptionPeriod> {
    Ok(SubscriptionPeriod {
        topic: row.try_get("topic")?,
        handler: row.try_get("handler")?,
        since: time(row, "since")?,
        until: time_if_any(row, "retired_at")?,
        dropped: row.try_get("dropped")?,
    })
}

#[cfg(test)]
mod fuzz {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_name_of_an_output_is_read_as_it_was_written(step in "[a-c# ]{0,4}", number in any::<u32>()) {
            let name = scoop_core::output_name(&step, number);
            prop_assert_eq!(read_output_name(&name), Some((&*step, number)));
        }

        #[test]
        fn any_other_name_is_that_of_a_reply(name in "(Output of )?[a#]{0,3}[0-9-]{0,11}") {
            if let Some((step, number)) = read_output_name(&name) {
                let written = name.strip_prefix("Output of ").and_then(|rest| rest.strip_prefix(step));
                let digits = written.and_then(|rest| rest.strip_prefix('#')).unwrap_or_default();
                prop_assert!(digits.ends_with(&number.to_string()));
            }
        }
    }

    #[test]
    fn of_several_outputs_of_a_step_the_newest_counts() {
        let named = |step, number: u32| (scoop_core::output_name(step, number), Value::from(number));
        let values = vec![named("a", 10), named("a", 9), named("b", 1), ("reply".to_owned(), Value::Null)];
        let expected = [("a".to_owned(), Value::from(10)), ("b".to_owned(), Value::from(1))];
        assert_eq!(newest_outputs(values, &BTreeMap::new()), Some(expected.into()));
        assert_eq!(newest_outputs(vec![("reply".to_owned(), Value::Null)], &BTreeMap::new()), None);
    }
}
