//! Lists and counts of runs, and what is known of one, for operators.

use std::time::{Duration, SystemTime};

use scoop_core::wait::MessageWait;
use scoop_core::{Failure, SignalKey, Wait};
use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use scoop_runtime::internal::{
    FetchExt as _, IDENTIFIER_PREFIX, concurrency, failed_attempts, failure_if_readable, lineage, pauses,
    phase, priority, rate, serial, stored_time, system_time, time, time_if_any,
};
use scoop_runtime::{RowState, RunId, RunPhase};

use super::activity::CountedSpan;
use super::counts::{CountLimits, Counted, FoundCounts, RunCount, RunPosition};
use super::explanation::{
    BELOW_MAX, BLOCKING_MAX, COUNT_MAX, FAILED_BELOW_READ, FailedBelow, JoinWait, LimitFacts, LimitKey,
    RunFacts, WorkerInfo,
};
use super::filter::{Depth, PageSize, Part, RunFilter};
use super::found::FieldFilter;
use super::{FailureSummary, FoundBy, RunSummary, WaitKind};
use crate::cursor::EndedCursor;
use crate::database::Database;
use crate::events::first_id_of;
use crate::statements::*;

impl Database {
    pub(super) async fn unfinished_runs(
        &self,
        filter: &RunFilter,
        after: Option<Uuid>,
        page: PageSize,
    ) -> sqlx::Result<Part<Uuid>> {
        let rows = sqlx::query(self.text(RUN_PAGE_UNFINISHED))
            .bind(&filter.handler)
            .bind(&filter.topic)
            .bind(filter.row_states())
            .bind(names(filter.phases.iter().map(|phase| phase.name())))
            .bind(filter.since)
            .bind(filter.until)
            .bind(&filter.code)
            .bind(names(filter.waits.iter().map(|wait| wait.name())))
            .bind(filter.lineage_max())
            .bind(after)
            .bind(page.fetched())
            .bind(page.read())
            .all(self.sessions())
            .await?;
        let floor = rows.first().map(|row| row.try_get("floor")).transpose()?.flatten();
        let runs = rows.iter().filter_map(|row| read_unfinished(filter, row).transpose());
        Ok(Part::new(runs.collect::<sqlx::Result<_>>()?, page, floor))
    }

    pub(super) async fn finished_runs(
        &self,
        filter: &RunFilter,
        after: Option<EndedCursor>,
        page: PageSize,
    ) -> sqlx::Result<Part<EndedCursor>> {
        let (at, id) = after.unzip();
        let rows = sqlx::query(self.text(RUN_PAGE_FINISHED))
            .bind(&filter.handler)
            .bind(&filter.topic)
            .bind(filter.ends().into_iter().map(outcome).collect::<Vec<_>>())
            .bind(filter.since)
            .bind(filter.until)
            .bind(&filter.code)
            .bind(filter.lineage_max())
            .bind(at)
            .bind(id)
            .bind(page.fetched())
            .bind(page.read())
            .all(self.sessions())
            .await?;
        let floor = match rows.first() {
            Some(row) => row.try_get::<Option<Uuid>, _>("floor_id")?.zip(row.try_get("floor_at")?),
            None => None,
        };
        let floor = floor.map(|(id, at)| (at, id));
        let runs = rows.iter().filter_map(|row| read_finished(filter, row).transpose());
        Ok(Part::new(runs.collect::<sqlx::Result<_>>()?, page, floor))
    }

    pub(super) async fn run_facts(&self, root: Uuid, run: Uuid) -> sqlx::Result<Option<RunFacts>> {
        let row = sqlx::query(self.text(RUN_EXPLAIN))
            .bind(root)
            .bind(run)
            .bind(stored(COUNT_MAX))
            .bind(stored(BLOCKING_MAX))
            .first(self.sessions())
            .await?;
        let read_at = system_time(self.now().await?.latest);
        let join = self.join_wait(run).await?;
        let Some(row) = row else {
            let ended =
                sqlx::query(self.text(RUN_EXPLAIN_ENDED)).bind(root).bind(run).first(self.sessions()).await?;
            let ended = ended.map(|row| read_finished(&RunFilter::default(), &row)).transpose()?.flatten();
            let Some((_, ended)) = ended else {
                return Ok(None);
            };
            return Ok(Some(RunFacts { join, ..RunFacts::ended(ended, read_at) }));
        };
        let Some((_, summary)) = read_unfinished(&RunFilter::default(), &row)? else {
            return Ok(None);
        };
        let below = match row.try_get::<i64, _>("children")? {
            0 => vec![],
            _ => self.below(root, run).await?,
        };
        let workers = self.workers(row.try_get("owner")?, &summary).await?;
        let failed_below = self.failed_below(root, &summary).await?;
        Ok(Some(RunFacts {
            giving_up: row.try_get("giving_up")?,
            cancelled: row.try_get("cancelled")?,
            definition: Some(row.try_get("reserved_for")?).filter(|reserved| *reserved != 0),
            is_suspect: row.try_get("is_suspect")?,
            priority: priority(&row)?,
            queue: (count(&row, "ahead")?, count(&row, "queued")?),
            workers,
            pauses: pauses(&row, "pauses")?,
            limit: limit(&row)?,
            children: count(&row, "children")?,
            strategies: strategies(&row)?,
            below,
            failed_below,
            join,
            ..RunFacts::ended(summary, read_at)
        }))
    }

    pub(super) async fn unfinished_counts(&self, limits: CountLimits) -> sqlx::Result<Counted> {
        let query = sqlx::query(self.text(RUN_COUNT_UNFINISHED)).bind(limits.runs.map(stored));
        let rows = query.bind(limits.sagas.map(stored)).all(self.sessions()).await?;
        let read = |row: &PgRow| -> sqlx::Result<RunCount> {
            let oldest = time_if_any(row, "oldest")?.map(system_time);
            Ok(RunCount {
                oldest,
                is_capped: row.try_get("is_capped")?,
                ..RunCount::new(row.try_get("handler")?, phase(row)?, count(row, "count")?)
            })
        };
        counted(&rows, read)
    }

    pub(super) async fn run_positions(
        &self,
        handlers: &[String],
        limit: usize,
    ) -> sqlx::Result<Vec<RunPosition>> {
        let query = sqlx::query(self.text(RUN_POSITIONS)).bind(handlers).bind(stored(limit));
        let rows = query.all(self.sessions()).await?;
        let read = |row: &PgRow| -> sqlx::Result<RunPosition> {
            let Json(steps) = row.try_get("steps")?;
            Ok(RunPosition {
                handler: row.try_get("handler")?,
                topic: row.try_get("topic")?,
                step: row.try_get("step")?,
                jump: row.try_get("jump")?,
                steps,
                awaits: row.try_get("signal")?,
                count: count(row, "count")?,
                is_capped: row.try_get("is_capped")?,
            })
        };
        rows.iter().map(read).collect()
    }

    pub(super) async fn finished_counts(
        &self,
        since: OffsetDateTime,
        limits: CountLimits,
    ) -> sqlx::Result<Counted> {
        let rows = sqlx::query(self.text(RUN_COUNT_FINISHED))
            .bind(since)
            .bind(limits.runs.map(stored))
            .bind(limits.sagas.map(stored))
            .all(self.sessions())
            .await?;
        let read = |row: &PgRow| -> sqlx::Result<RunCount> {
            let count = RunCount::new(row.try_get("handler")?, end(row)?, count(row, "count")?);
            Ok(RunCount { is_capped: limits.runs.is_some_and(|limit| count.count >= limit), ..count })
        };
        counted(&rows, read)
    }

    /// The counts of the runs that are found by these fields.
    pub(super) async fn found_counts(
        &self,
        fields: &[FieldFilter],
        since: OffsetDateTime,
        limit: Option<usize>,
    ) -> sqlx::Result<FoundCounts> {
        let ordered = self.ordered(fields).await?;
        let (field, values) = ordered.first_values();
        let rows = sqlx::query(self.text(RUN_COUNT_FOUND))
            .bind(field)
            .bind(values)
            .bind(None::<OffsetDateTime>)
            .bind(None::<Uuid>)
            .bind(limit.map(stored))
            .bind(ordered.others())
            .bind(limit.map(stored))
            .bind(since)
            .all(self.sessions())
            .await?;
        let (mut counts, mut is_capped) = (FoundCounts::default(), false);
        for row in &rows {
            let number = count(row, "count")?;
            let Some(handler) = row.try_get("handler")? else {
                let read = count(row, "read")?.max(number);
                is_capped = limit.is_some_and(|limit| read >= limit);
                continue;
            };
            let oldest = time_if_any(row, "oldest")?.map(system_time);
            let counted = RunCount { oldest, is_capped, ..RunCount::new(handler, phase(row)?, number) };
            if row.try_get("ended")? {
                counts.finished.push(counted)
            } else {
                counts.unfinished.push(counted)
            }
        }
        Ok(counts)
    }

    pub(super) async fn counted_spans(
        &self,
        bounds: &[OffsetDateTime],
        limit: usize,
    ) -> sqlx::Result<Vec<CountedSpan>> {
        let ids: Vec<_> = bounds.iter().copied().map(first_id_of).collect();
        let rows = sqlx::query(self.text(EVENT_ACTIVITY))
            .bind(ids.get(..ids.len().saturating_sub(1)).unwrap_or_default().to_vec())
            .bind(ids.get(1..).unwrap_or_default().to_vec())
            .bind(stored(limit))
            .all(self.sessions())
            .await?;
        let read = |row: &PgRow| -> sqlx::Result<CountedSpan> {
            let counted = |column| count(row, column).map(|count| count as u64);
            Ok(CountedSpan {
                launched: counted("launched")?,
                committed: counted("committed")?,
                failed: counted("failed")?,
                read: counted("read")?,
                last_at: time_if_any(row, "last_at")?,
            })
        };
        rows.iter().map(read).collect()
    }

    pub(super) async fn run_durations(
        &self,
        since: OffsetDateTime,
        of_each: usize,
    ) -> sqlx::Result<Vec<(String, Duration)>> {
        let rows = sqlx::query(self.text(RUN_DURATIONS))
            .bind(since)
            .bind(stored(of_each))
            .bind(stored(DURATIONS_MAX))
            .bind(stored(DURATIONS_OF_SAGAS_MAX))
            .all(self.sessions())
            .await?;
        let read = |row: &PgRow| -> sqlx::Result<(String, Duration)> {
            let duration = Duration::try_from_secs_f64(row.try_get("seconds")?).unwrap_or_default();
            Ok((row.try_get("handler")?, duration))
        };
        rows.iter().map(read).collect()
    }
}

/// The counts in these rows, of which one without a handler says that some are left out.
fn counted(rows: &[PgRow], read: impl Fn(&PgRow) -> sqlx::Result<RunCount>) -> sqlx::Result<Counted> {
    let (mut counts, mut is_complete) = (Vec::with_capacity(rows.len()), true);
    for row in rows {
        match row.try_get::<Option<&str>, _>("handler")? {
            Some(_) => counts.push(read(row)?),
            None => is_complete = false,
        }
    }
    Ok(Counted { counts, is_complete })
}

impl Database {
    /// The unfinished runs below this one, the nearest first.
    pub(super) async fn below(&self, root: Uuid, run: Uuid) -> sqlx::Result<Vec<RunSummary>> {
        let rows = sqlx::query(self.text(RUN_EXPLAIN_BELOW))
            .bind(root)
            .bind(run)
            .bind(stored(BELOW_MAX))
            .all(self.sessions())
            .await?;
        let any = RunFilter::default();
        let runs = rows.iter().filter_map(|row| read_unfinished(&any, row).transpose());
        runs.map(|run| Ok(run?.1)).collect()
    }

    /// The failed runs that come before this failed one. One more than is shown.
    pub(super) async fn failed_below(&self, root: Uuid, run: &RunSummary) -> sqlx::Result<Vec<FailedBelow>> {
        if run.phase != RunPhase::RollbackFailed {
            return Ok(vec![]);
        }
        let rows = sqlx::query(self.text(RUN_FAILED_BELOW))
            .bind(root)
            .bind(run.run.uuid())
            .bind(stored(FAILED_BELOW_READ))
            .bind(stored(BELOW_MAX))
            .all(self.sessions())
            .await?;
        let read = |row: &PgRow| -> sqlx::Result<FailedBelow> {
            let failure = failure_if_readable(row, "failure");
            let (run, handler): (Uuid, String) = (row.try_get("run")?, row.try_get("handler")?);
            Ok(FailedBelow::new(run, handler, failure.as_ref()))
        };
        rows.iter().map(read).collect()
    }

    /// The owner of a run, or else the workers that have its saga.
    pub(super) async fn workers(
        &self,
        owner: Option<Uuid>,
        run: &RunSummary,
    ) -> sqlx::Result<Vec<WorkerInfo>> {
        let rows = sqlx::query(self.text(RUN_EXPLAIN_WORKERS))
            .bind(owner)
            .bind(&run.handler)
            .bind(&run.topic)
            .bind(stored(WORKERS_MAX))
            .all(self.sessions())
            .await?;
        rows.iter().map(read_worker).collect()
    }

    pub(super) async fn join_wait(&self, run: Uuid) -> sqlx::Result<Option<JoinWait>> {
        let row = sqlx::query(self.text(JOIN_EXPLAIN)).bind(run).first(self.sessions()).await?;
        let read = |row: PgRow| -> sqlx::Result<JoinWait> {
            Ok(JoinWait {
                saga: row.try_get("saga")?,
                key: row.try_get("key")?,
                since: system_time(time(&row, "since")?),
                until: time_if_any(&row, "expires_at")?.map(system_time),
                present: row.try_get("present")?,
                missing: vec![],
            })
        };
        row.map(read).transpose()
    }
}

/// The messages about whose handlers strategies decide.
fn strategies(row: &PgRow) -> sqlx::Result<Vec<MessageWait>> {
    let wait = row.try_get::<Option<Json<Value>>, _>("wait")?;
    let wait = wait.and_then(|Json(wait)| serde_json::from_value::<Wait>(wait).ok());
    Ok(wait.map_or(vec![], |wait| wait.messages().to_vec()))
}

/// A run that counts for a limit: its id, and its state behind that.
fn read_holder(text: &str) -> Option<(RunId, RunPhase)> {
    let (run, phase) = text.split_once(' ')?;
    Some((Uuid::parse_str(run).ok()?.into(), phase.parse().ok()?))
}

/// The limits for which a run waits.
fn limit(row: &PgRow) -> sqlx::Result<Option<LimitFacts>> {
    let (concurrency, rate) = (concurrency(row)?, rate(row)?);
    if concurrency.is_none() && rate.is_none() {
        return Ok(None);
    }
    let from: Option<String> = row.try_get("key_from")?;
    let key = from.filter(|from| !from.is_empty()).zip(row.try_get("limit_key")?);
    let holders: Vec<String> = row.try_get("holders")?;
    Ok(Some(LimitFacts {
        concurrency,
        serial: serial(row)?,
        rate,
        key: key.map(|(from, key): (String, String)| LimitKey::new(from, key)),
        holders: holders.iter().filter_map(|holder| read_holder(holder)).collect(),
        opens_at: time_if_any(row, "opens_at")?,
    }))
}

/// The maximum number of runs whose durations are read, and of their sagas.
const DURATIONS_MAX: usize = 5_000;
const DURATIONS_OF_SAGAS_MAX: usize = 1_000;

/// The maximum number of workers in an explanation.
const WORKERS_MAX: usize = 100;

fn read_worker(row: &PgRow) -> sqlx::Result<WorkerInfo> {
    let id: Uuid = row.try_get("id")?;
    let application: Option<String> = row.try_get("application")?;
    Ok(WorkerInfo {
        identifier: format!("{IDENTIFIER_PREFIX}{id}"),
        started_at: system_time(time(row, "started_at")?),
        is_alive: row.try_get("is_alive")?,
        application: application.filter(|name| !name.is_empty()),
        address: row.try_get("address")?,
        definition: row.try_get("definition")?,
    })
}

fn count(row: &PgRow, column: &str) -> sqlx::Result<usize> {
    let count: i64 = row.try_get(column)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The outcome of an ended run.
fn end(row: &PgRow) -> sqlx::Result<RunPhase> {
    let outcome: &str = row.try_get("outcome")?;
    outcome.parse().map_err(|error: String| sqlx::Error::Decode(error.into()))
}

/// The label of an outcome in the type `scoop.run_outcome`.
pub(super) fn outcome(end: RunPhase) -> String {
    end.name().replace(' ', "_")
}

/// A list of names; `None` if it is empty.
pub(super) fn names(names: impl Iterator<Item = &'static str>) -> Option<Vec<String>> {
    let names: Vec<_> = names.map(str::to_owned).collect();
    (!names.is_empty()).then_some(names)
}

impl RunFilter {
    /// The states of rows that unfinished runs of the list have; `None` for all.
    fn row_states(&self) -> Option<Vec<String>> {
        let of_phases = |state| {
            self.phases.is_empty() || self.phases.iter().any(|phase| phase.row_states().contains(&state))
        };
        let of_waits = |state| {
            let mut states = self.waits.iter().flat_map(|wait| wait.row_states());
            self.waits.is_empty() || states.any(|it| it == state)
        };
        let all = [RowState::Ready, RowState::Running, RowState::Waiting, RowState::Stuck, RowState::Failed];
        let asked: Vec<_> = all.into_iter().filter(|state| of_phases(*state) && of_waits(*state)).collect();
        (asked.len() < all.len()).then(|| asked.into_iter().map(|state| state.as_str().to_owned()).collect())
    }

    /// The maximum length of a lineage in the list.
    pub(super) fn lineage_max(&self) -> Option<i32> {
        match self.depth {
            Depth::All => None,
            Depth::Roots => Some(2),
        }
    }
}

impl PageSize {
    /// One more than the page has, to know whether there are more.
    fn fetched(self) -> i64 {
        stored(self.runs + 1)
    }

    fn read(self) -> i64 {
        stored(self.reads.max(self.runs + 1))
    }
}

pub(super) fn stored(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Whether the filter admits the failure of a run, or the other failure in its row.
fn admits_failures(filter: &RunFilter, row: &PgRow, failure: Option<&Failure>) -> bool {
    let other = filter.code.as_ref().and_then(|_| failure_if_readable(row, "other_failure"));
    filter.admits_failures(failure.into_iter().chain(&other))
}

/// The run of a row, if it has one that the filter admits.
pub(super) fn read_unfinished(filter: &RunFilter, row: &PgRow) -> sqlx::Result<Option<(Uuid, RunSummary)>> {
    let Some(run) = row.try_get::<Option<Uuid>, _>("id")? else {
        return Ok(None);
    };
    let failure = failure_if_readable(row, "failure");
    if !admits_failures(filter, row, failure.as_ref()) {
        return Ok(None);
    }
    let phase = phase(row)?;
    let wait: &str = row.try_get("waits_for")?;
    let ready_at = time_if_any(row, "ready_at")?;
    let owner: Option<Uuid> = row.try_get("owner")?;
    let signal: Option<String> = row.try_get("signal")?;
    let key: Option<String> = row.try_get("signal_key")?;
    let waits_for = wait.parse().ok();
    let root: Uuid = row.try_get("root")?;
    let parent: Option<Uuid> = row.try_get("parent")?;
    let is_ahead = waits_for == Some(WaitKind::Time) || phase == RunPhase::AwaitingSignal;
    let since = system_time(time(row, "since")?);
    let Times { queued_at, began_at, queue_time, duration } = Times::of(row, phase, since)?;
    let summary = RunSummary {
        run: run.into(),
        hierarchy: root.into(),
        parent: parent.map(Into::into),
        handler: row.try_get("handler")?,
        topic: row.try_get("topic")?,
        message_id: row.try_get("message_id")?,
        phase,
        since,
        queued_at,
        began_at,
        queue_time,
        duration,
        waits_for,
        attempts: failed_attempts(row)?,
        reason: row.try_get("reason")?,
        failure: failure.as_ref().map(|failure| FailureSummary::in_phase(phase, failure)),
        rolling_back: phase != RunPhase::RollbackFailed && row.try_get("rolling_back")?,
        can_give_up: row.try_get("can_give_up")?,
        deadline: time_if_any(row, "give_up_at")?.map(system_time),
        wakes_at: ready_at.filter(|_| is_ahead).map(system_time),
        awaits: signal.zip(key).map(|(name, key)| SignalKey { name, key }).filter(|_| is_ahead),
        worker: owner.map(|owner| format!("{IDENTIFIER_PREFIX}{owner}")),
        step: row.try_get("step")?,
        skipped: 0,
        found_by: FoundBy::of(row)?,
    };
    Ok(Some((run, summary)))
}

/// When a run could have begun and when it did, and how long that and the run took.
struct Times {
    queued_at: Option<SystemTime>,
    began_at: Option<SystemTime>,
    queue_time: Option<Duration>,
    duration: Option<Duration>,
}

impl Times {
    fn of(row: &PgRow, phase: RunPhase, since: SystemTime) -> sqlx::Result<Self> {
        let queued_at = time_if_any(row, "queued_at")?.map(system_time);
        let began_at = time_if_any(row, "began_at")?.map(system_time);
        let between = |from: SystemTime, to: SystemTime| to.duration_since(from).ok();
        let duration = began_at.filter(|_| phase.is_finished()).and_then(|began| between(began, since));
        let queue_time = queued_at.zip(began_at).and_then(|(queued, began)| between(queued, began));
        Ok(Self { queued_at, began_at, queue_time, duration })
    }
}

/// The run of a row, if it has one that the filter admits.
pub(super) fn read_finished(
    filter: &RunFilter,
    row: &PgRow,
) -> sqlx::Result<Option<(EndedCursor, RunSummary)>> {
    let Some(run) = row.try_get::<Option<Uuid>, _>("id")? else {
        return Ok(None);
    };
    let phase = end(row)?;
    let failure = failure_if_readable(row, "failure");
    if !admits_failures(filter, row, failure.as_ref()) {
        return Ok(None);
    }
    let lineage = lineage(row)?;
    let parent = lineage.parent().filter(|parent| parent.ids().len() > 1);
    let at = stored_time(row, "ended_at")?;
    let since = system_time(at.time());
    let Times { queued_at, began_at, queue_time, duration } = Times::of(row, phase, since)?;
    let summary = RunSummary {
        run: run.into(),
        hierarchy: lineage.root_id().into(),
        parent: parent.map(|parent| parent.id().into()),
        handler: row.try_get("handler")?,
        topic: row.try_get("topic")?,
        message_id: row.try_get("message_id")?,
        phase,
        since,
        queued_at,
        began_at,
        queue_time,
        duration,
        waits_for: None,
        attempts: 0,
        reason: None,
        failure: failure.as_ref().map(|failure| FailureSummary::in_phase(phase, failure)),
        rolling_back: false,
        can_give_up: false,
        deadline: None,
        wakes_at: None,
        awaits: None,
        worker: row.try_get("worker")?,
        step: row.try_get("step")?,
        skipped: count(row, "skipped")?,
        found_by: FoundBy::of(row)?,
    };
    Ok(Some(((at, run), summary)))
}
