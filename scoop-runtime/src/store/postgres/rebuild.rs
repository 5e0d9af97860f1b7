//! Rebuilds the working set from the recorded events, or compares it with them. A hierarchy that cannot be rebuilt keeps
//! its rows, and the others are rebuilt.

use crate::store::{OnDifference, OnRebuilt, RebuildStorage};
use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt;
use scoop_core::{Context, EventKind, read_output_name};
use serde_json::{Map, Value};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Acquire, AssertSqlSafe, PgConnection, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::decode::{lineage, time, time_if_any, unsigned};
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use super::rollback_history::outside_of_time;
use crate::error::is_of_contents;
use crate::rebuild::{
    FailedRollbackComparison, OperatorAction, RebuildChange, RebuildComparison, RebuildProgress,
    RebuildReport, Rebuilt, RecordedEvent, RecordedExecution, RunDifference, SkippedHierarchy,
    SubscriptionPeriod, UnmatchedFailure, newest_outputs, rebuild, root_of,
};
use crate::repair::{RepairAction, SIGNAL};
use crate::util::patience::note;

/// How many failed rollbacks of the list and of the record, and repeated failures, a comparison of these reads, and of how many
/// sagas.
const FAILURES_COMPARED: i64 = 10_000;
const FAILED_SAGAS_COMPARED: i64 = 1_000;

/// The number of runs written by one statement.
const BATCH_MAX: usize = 1_000;

/// A consistent view of everything, which no other transaction waits for.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Why hierarchies cannot be rebuilt.
type Reasons = BTreeMap<Uuid, String>;

/// One attempt to rebuild the working set.
struct Pass {
    before: u64,
    after: u64,
    at_fault: Reasons,
}

/// What becomes of the rebuilt runs.
enum Purpose<'a> {
    /// They are written into the empty working set.
    Rebuild { report: OnRebuilt<'a> },
    /// They are compared with the working set.
    Compare { now: OffsetDateTime, report: OnDifference<'a> },
}

/// Rebuilt runs of whole hierarchies: all that there are after one hierarchy, up to another one.
struct Part {
    after: Uuid,
    last: Uuid,
    runs: Vec<Rebuilt>,
}

impl Part {
    /// The two halves, if it has several hierarchies.
    fn halves(self) -> Result<[Self; 2], Self> {
        let roots: BTreeSet<_> = self.runs.iter().map(Rebuilt::root).collect();
        let half = roots.len().div_ceil(2);
        let Some(middle) = roots.iter().nth(half.saturating_sub(1)).copied().filter(|_| roots.len() > 1)
        else {
            return Err(self);
        };
        let (first, second) = self.runs.into_iter().partition(|run| run.root() <= middle);
        Ok([
            Self { after: self.after, last: middle, runs: first },
            Self { after: middle, last: self.last, runs: second },
        ])
    }
}

impl RebuildStorage for PostgresStore {
    async fn rebuild(&self, report: OnRebuilt<'_>) -> sqlx::Result<Result<RebuildReport, i64>> {
        let mut skipped = BTreeMap::new();
        loop {
            match self.rebuild_but(&skipped, &mut *report).await? {
                Ok(Pass { before, after, at_fault }) if at_fault.is_empty() => {
                    return Ok(Ok(RebuildReport { before, after, skipped: all_skipped(skipped) }));
                }
                Ok(Pass { at_fault, .. }) => skipped.extend(at_fault),
                Err(alive) => return Ok(Err(alive)),
            }
        }
    }

    async fn compare_with_record(&self, report: OnDifference<'_>) -> sqlx::Result<RebuildComparison> {
        let mut reader = self.sessions.begin_with(SNAPSHOT).await?;
        let mut tx = self.sessions.begin_with(SNAPSHOT).await?;
        let snapshot: String = sqlx::query_scalar("SELECT pg_export_snapshot()").one_on(&mut reader).await?;
        // Safe: the server has made it.
        let snapshot = AssertSqlSafe(format!(
            "SET TRANSACTION SNAPSHOT '{snapshot}'; SET LOCAL idle_in_transaction_session_timeout = 0"
        ));
        sqlx::raw_sql(snapshot).execute(&mut *tx).await?;
        let now: OffsetDateTime = sqlx::query_scalar("SELECT clock_timestamp()").one_on(&mut tx).await?;
        let mut counts = RebuildComparison::default();
        let mut pass = Pass { before: 0, after: 0, at_fault: Reasons::new() };
        {
            let mut counted = |difference: RunDifference| {
                counts.different += 1;
                match difference.change {
                    RebuildChange::Added => counts.after += 1,
                    RebuildChange::Removed => counts.before += 1,
                    RebuildChange::Changed(_) => {}
                }
                report(difference);
            };
            let purpose = Purpose::Compare { now, report: &mut counted };
            self.rebuild_all(&mut tx, &mut reader, &Reasons::new(), &mut pass, purpose).await?;
            self.compare_failures(&mut tx, &pass.at_fault, &mut counted).await?;
        }
        let RebuildComparison { before: removed, after: added, different, .. } = counts;
        let skipped = all_skipped(pass.at_fault);
        Ok(RebuildComparison { before: pass.after - added + removed, after: pass.after, different, skipped })
    }

    async fn compare_failed_rollbacks(&self) -> sqlx::Result<FailedRollbackComparison> {
        let rows = sqlx::query(self.sql.rollback_failure_compare.clone())
            .bind(FAILURES_COMPARED)
            .bind(FAILED_SAGAS_COMPARED)
            .bind(FailedRollbackComparison::LIMIT as i64)
            .all(&self.sessions)
            .await?;
        let mut comparison = FailedRollbackComparison::default();
        for row in &rows {
            comparison.compared = row.try_get::<i64, _>("count")?.cast_unsigned();
            if row.try_get::<Option<Uuid>, _>("run")?.is_some() {
                comparison.different.push(read_failed_rollback(row)?);
            }
        }
        let unmatched = sqlx::query(self.sql.repeated_failure_unmatched.clone())
            .bind(FAILURES_COMPARED)
            .bind(FailedRollbackComparison::LIMIT as i64)
            .all(&self.sessions)
            .await?;
        comparison.unmatched = unmatched.iter().map(read_unmatched_failure).collect::<sqlx::Result<_>>()?;
        Ok(comparison)
    }
}

fn read_unmatched_failure(row: &PgRow) -> sqlx::Result<UnmatchedFailure> {
    Ok(UnmatchedFailure {
        id: row.try_get("id")?,
        hierarchy: row.try_get::<Uuid, _>("root")?.into(),
        run: row.try_get::<Uuid, _>("run")?.into(),
        handler: row.try_get("handler")?,
        message_id: row.try_get("message_id")?,
        shares_id: row.try_get("shares_id")?,
    })
}

/// The row of a failed rollback that differs between the list of these and the record.
fn read_failed_rollback(row: &PgRow) -> sqlx::Result<RunDifference> {
    let place = (row.try_get("root")?, row.try_get("run")?, row.try_get("message_id")?);
    let values = [row.try_get("kept")?, row.try_get("recorded")?];
    Ok(RunDifference::of_failed_rollback(place, row.try_get("handler")?, values))
}

fn all_skipped(reasons: Reasons) -> Vec<SkippedHierarchy> {
    let skipped = reasons.into_iter();
    skipped.map(|(id, reason)| SkippedHierarchy { hierarchy: id.into(), reason }).collect()
}

impl PostgresStore {
    /// The same, without these hierarchies. If others are at fault, nothing has changed.
    async fn rebuild_but(&self, skipped: &Reasons, report: OnRebuilt<'_>) -> sqlx::Result<Result<Pass, i64>> {
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
        sqlx::query(self.sql.rebuild_insert_failures.clone()).execute(&mut *tx).await?;
        self.rebuild_all(&mut tx, &mut reader, skipped, &mut pass, Purpose::Rebuild { report }).await?;
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
        mut purpose: Purpose<'_>,
    ) -> sqlx::Result<()> {
        let topology = sqlx::query(self.sql.handler_list_all.clone()).fetch_all(&mut *tx).await?;
        let topology = topology.iter().map(read_listened).collect::<sqlx::Result<Vec<_>>>()?;
        let now: OffsetDateTime = sqlx::query_scalar("SELECT clock_timestamp()").one_on(&mut *tx).await?;
        let mut events = sqlx::query(self.sql.rebuild_events.clone()).fetch(reader);
        let (mut hierarchy, mut rebuilt): (Vec<RecordedEvent>, Vec<Rebuilt>) = Default::default();
        let (mut after, mut last) = (Uuid::nil(), Uuid::nil());
        let (mut hierarchies, mut total) = (skipped.len() as u64, 0);
        loop {
            let next = match events.try_next().await? {
                Some(row) => {
                    let root = row.try_get("root")?;
                    total = row.try_get("hierarchies").map(i64::cast_unsigned)?;
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
                last = hierarchy.first().map_or(last, root_of);
                match self.revivals(tx, &hierarchy).await {
                    Ok(revivals) => rebuilt.extend(rebuild(&hierarchy, &revivals, &topology, now)),
                    Err(error) if is_of_contents(&error) => {
                        let root = hierarchy.first().map(root_of);
                        let reason = format!("a decision of an operator cannot be read: {error}");
                        pass.at_fault.extend(root.map(|root| (root, reason)));
                    }
                    Err(error) => return Err(error),
                }
                if let (Purpose::Rebuild { report }, false) = (&mut purpose, hierarchy.is_empty()) {
                    hierarchies += 1;
                    report(RebuildProgress { hierarchies, total });
                }
                hierarchy.clear();
            }
            if rebuilt.len() >= BATCH_MAX || next.is_none() {
                let last = if next.is_none() { Uuid::max() } else { last };
                let part = Part { after, last, runs: std::mem::take(&mut rebuilt) };
                self.apply_apart(tx, part, pass, &mut purpose).await?;
                after = last;
            }
            match next {
                Some(next) => hierarchy.push(next),
                None => return Ok(()),
            }
        }
    }

    /// Writes or compares these runs. A part that the database refuses is halved, until the hierarchy at fault is alone.
    async fn apply_apart(
        &self,
        tx: &mut PgConnection,
        part: Part,
        pass: &mut Pass,
        purpose: &mut Purpose<'_>,
    ) -> sqlx::Result<()> {
        let mut parts = vec![part];
        while let Some(mut part) = parts.pop() {
            let mut savepoint = tx.begin().await?;
            match self.apply(&mut savepoint, &mut part, &pass.at_fault, purpose).await {
                Ok(()) => {
                    savepoint.commit().await?;
                    pass.after += part.runs.len() as u64;
                }
                Err(error) if is_of_contents(&error) => {
                    savepoint.rollback().await?;
                    match part.halves() {
                        Ok([first, second]) => parts.extend([second, first]),
                        Err(Part { after, last, runs }) => {
                            let Some(root) = runs.first().map(Rebuilt::root) else { return Err(error) };
                            pass.at_fault.insert(root, format!("the database refuses a run: {error}"));
                            parts.push(Part { after, last, runs: vec![] });
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn apply(
        &self,
        tx: &mut PgConnection,
        part: &mut Part,
        at_fault: &Reasons,
        purpose: &mut Purpose<'_>,
    ) -> sqlx::Result<()> {
        self.read_outputs(&mut *tx, &mut part.runs).await?;
        match purpose {
            Purpose::Rebuild { .. } => {
                let insert = sqlx::query(self.sql.rebuild_insert.clone()).bind(Json(&part.runs));
                insert.execute(tx).await.map(drop)
            }
            Purpose::Compare { now, report } => {
                let compare = sqlx::query(self.sql.rebuild_compare.clone())
                    .bind(Json(&part.runs))
                    .bind(part.after)
                    .bind(part.last)
                    .bind(at_fault.keys().copied().collect::<Vec<_>>())
                    .bind(*now);
                let mut different = compare.fetch(tx);
                while let Some(row) = different.try_next().await? {
                    report(read_difference(&row)?);
                }
                Ok(())
            }
        }
    }

    /// Compares the list of failed rollbacks with the record, without the hierarchies that cannot be rebuilt.
    async fn compare_failures(
        &self,
        tx: &mut PgConnection,
        at_fault: &Reasons,
        report: OnDifference<'_>,
    ) -> sqlx::Result<()> {
        let compare = sqlx::query(self.sql.rebuild_compare_failures.clone())
            .bind(at_fault.keys().copied().collect::<Vec<_>>());
        let mut different = compare.fetch(tx);
        while let Some(row) = different.try_next().await? {
            report(read_failed_rollback(&row)?);
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
            // A signal revives nothing.
            if kind == SIGNAL {
                return Ok(None);
            }
            let resolves = kind == RepairAction::Resolve.as_str();
            Ok(Some(OperatorAction { run: row.try_get("run")?, at: time(row, "requested_at")?, resolves }))
        };
        rows.iter().map(read).filter_map(Result::transpose).collect()
    }

    /// Reads the values of steps that the rows of these runs contain.
    async fn read_outputs(&self, tx: &mut PgConnection, rebuilt: &mut [Rebuilt]) -> sqlx::Result<()> {
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
        Ok(())
    }
}

fn read_difference(row: &PgRow) -> sqlx::Result<RunDifference> {
    let fields = |name| -> sqlx::Result<Option<Map<String, Value>>> {
        Ok(row.try_get::<Option<Json<_>>, _>(name)?.map(|Json(fields)| fields))
    };
    let (root, message, handler) =
        (row.try_get("root")?, row.try_get("message_id")?, row.try_get("handler")?);
    Ok(RunDifference::new(root, message, handler, fields("kept")?, fields("recorded")?))
}

fn read_recorded(row: &PgRow) -> sqlx::Result<RecordedEvent> {
    let kind: String = row.try_get("type")?;
    let kind = EventKind::from_name(&kind)
        .ok_or_else(|| sqlx::Error::Decode(format!("an event of the unknown type `{kind}`").into()))?;
    if !row.try_get::<bool, _>("has_times")? {
        let id: Uuid = row.try_get("id")?;
        let column = match kind {
            EventKind::Emitted => "`message_event.created_at` or `redelivery.redelivered_at`",
            EventKind::RollbackFailed => "`message_event.created_at` or `repeated_failure.failed_at`",
            _ => "`message_event.created_at`",
        };
        return Err(outside_of_time(format_args!("{id} ({column})")));
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
