//! Claims ready runs; `run_claim.sql` decides which. If the database refuses a claim because of one of its runs, that
//! run is marked stuck.

use std::collections::{BTreeMap, HashSet};

use scoop_core::Priority;
use serde::Serialize;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{Postgres, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::decode::time;
use super::query_ext::FetchExt;
use crate::error::is_of_contents;
use crate::store::{
    ClaimQueues, ClaimStorage, ClaimedRun, Claimer, QueueCursors, QueueScan, Snapshot, Suspect, Unclaimed,
};
use crate::telemetry::metrics;
use crate::util::ids;

/// How many runs of each handler a worker executes.
type Counts = BTreeMap<String, usize>;

pub(super) struct Claim<'a, S> {
    claimer: Claimer<'a>,
    queues: &'a ClaimQueues,
    running_counts: S,
}

impl<'a> Claim<'a, Counts> {
    /// A claim from the queues of one saga, or of one run: how many runs of others the worker executes does not matter.
    pub(super) fn uncounted(claimer: Claimer<'a>, queues: &'a ClaimQueues) -> Self {
        Self { claimer, queues, running_counts: Counts::new() }
    }
}

impl ClaimStorage for PostgresStore {
    async fn queues_ready(
        &self,
        queues: &ClaimQueues,
        progress: &QueueCursors,
    ) -> sqlx::Result<(ClaimQueues, QueueScan)> {
        let (open, since) = progress.open();
        let rows = sqlx::query(self.sql.handler_list_ready.clone())
            .bind(&queues.topics)
            .bind(&queues.handlers)
            .bind(&queues.reserved_for)
            .bind(progress.since(queues, Priority::Normal))
            .bind(progress.since(queues, Priority::High))
            .bind(progress.since(queues, Priority::Low))
            .bind(open)
            .bind(since)
            .bind(&queues.begun_only);
        let rows: Vec<PgRow> = rows.all(&self.sessions).await?;
        let scan = rows.first().map(scan).transpose()?.ok_or(sqlx::Error::RowNotFound)?;
        let mut ready = HashSet::new();
        for row in &rows {
            if let Some(topic) = row.try_get::<Option<&str>, _>("topic")? {
                ready.insert((topic, row.try_get("handler")?, row.try_get("lane")?));
            }
        }
        Ok((queues.only(|queue| ready.contains(&queue)), scan))
    }

    async fn claim(
        &self,
        claimer: Claimer<'_>,
        queues: &ClaimQueues,
        limit: usize,
        running_counts: &BTreeMap<String, usize>,
        progress: &mut QueueCursors,
    ) -> sqlx::Result<Vec<Result<ClaimedRun, Unclaimed>>> {
        let claim = Claim { claimer, queues, running_counts };
        match self.claim_from(&claim, limit, progress, None).await {
            // Boxed, so that the usual claim is not as large as this one.
            Err(error) if is_of_contents(&error) => Box::pin(self.claim_apart(&claim, limit)).await,
            claimed => claimed,
        }
    }

    async fn claim_suspect(
        &self,
        claimer: Claimer<'_>,
        queues: &ClaimQueues,
        suspect: &Suspect,
    ) -> sqlx::Result<Option<Result<ClaimedRun, Unclaimed>>> {
        let queues = &queues.only(|queue| queue == suspect.queue());
        if queues.len() == 0 {
            return Ok(None);
        }
        let mut from_there = QueueCursors::at(suspect);
        let claim = Claim::uncounted(claimer, queues);
        match self.claim_from(&claim, 1, &mut from_there, Some(&[suspect.id])).await {
            Err(error) if is_of_contents(&error) => {
                Ok(self.mark_refused(suspect.root, suspect.id, &error).await?.map(Err))
            }
            claimed => Ok(claimed?.pop()),
        }
    }
}

impl PostgresStore {
    /// Claims ready runs that are no suspects, or only these.
    async fn claim_from<S: Serialize + Send + Sync>(
        &self,
        claim: &Claim<'_, S>,
        limit: usize,
        progress: &mut QueueCursors,
        only: Option<&[Uuid]>,
    ) -> sqlx::Result<Vec<Result<ClaimedRun, Unclaimed>>> {
        let identifier = claim.claimer.identifier;
        let rows = self.claim_query(claim, limit, progress, only).all(&self.sessions).await?;
        let mut all = Vec::with_capacity(rows.len());
        if only.is_none() {
            record_scan(&rows, claim.queues, limit, progress)?;
        }
        for row in rows.iter().filter(|row| has_run(row)) {
            let claimed = ClaimedRun::from_row(row, identifier)?;
            if cfg!(feature = "metrics") {
                let waited = (OffsetDateTime::now_utc() - time(row, "ready_at")?).as_seconds_f64();
                metrics::queue_seconds(row.try_get("handler")?).record(waited.max(0.0));
            }
            all.push(claimed);
        }
        Ok(all)
    }

    pub(super) fn claim_query<'q, S: Serialize + Send + Sync>(
        &'q self,
        claim: &'q Claim<'_, S>,
        limit: usize,
        progress: &QueueCursors,
        only: Option<&'q [Uuid]>,
    ) -> Query<'q, Postgres, PgArguments> {
        let Claim { claimer: Claimer { worker, identifier }, queues, running_counts } = claim;
        let (open, since) = progress.open();
        sqlx::query(self.sql.run_claim.clone())
            .bind(worker)
            .bind(identifier)
            .bind(&queues.topics)
            .bind(&queues.handlers)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(Json(running_counts))
            .bind((0..limit).map(|_| ids::now_v7()).collect::<Vec<_>>())
            .bind(progress.since(queues, Priority::Normal))
            .bind(&queues.reserved_for)
            .bind(queues.topology)
            .bind(only)
            .bind(progress.since(queues, Priority::High))
            .bind(progress.since(queues, Priority::Low))
            .bind(open)
            .bind(since)
            .bind(&queues.begun_only)
    }

    /// Claims ready runs in parts. A part that the database refuses is halved until the run at fault is alone, which is
    /// then marked stuck. So a claim with one such run costs as many statements as the logarithm of its size.
    async fn claim_apart<S: Serialize + Send + Sync>(
        &self,
        claim: &Claim<'_, S>,
        limit: usize,
    ) -> sqlx::Result<Vec<Result<ClaimedRun, Unclaimed>>> {
        let ready = self.ready(claim.queues, limit).await?;
        let (mut claimed, mut parts) = (vec![], vec![&ready[..]]);
        while let Some(part) = parts.pop() {
            let ids: Vec<_> = part.iter().map(|(_, id)| *id).collect();
            let taken = self.claim_from(claim, ids.len(), &mut QueueCursors::default(), Some(&ids)).await;
            let taken = match (taken, part) {
                (Err(error), [(root, id)]) if is_of_contents(&error) => self
                    .mark_refused(*root, *id, &error)
                    .await
                    .map(|refused| refused.map(Err).into_iter().collect()),
                (Err(error), _) if is_of_contents(&error) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                    continue;
                }
                (taken, _) => taken,
            };
            match taken {
                Ok(taken) => claimed.extend(taken),
                Err(error) if claimed.is_empty() => return Err(error),
                // The runs claimed so far are executed.
                Err(_) => break,
            }
        }
        Ok(claimed)
    }

    pub(super) async fn ready(&self, queues: &ClaimQueues, limit: usize) -> sqlx::Result<Vec<(Uuid, Uuid)>> {
        sqlx::query_as(self.sql.run_list_ready.clone())
            .bind(&queues.topics)
            .bind(&queues.handlers)
            .bind(&queues.reserved_for)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(&queues.begun_only)
            .all(&self.sessions)
            .await
    }

    /// Marks a run as stuck whose claim the database refuses with this error, unless it is not ready any more.
    pub(super) async fn mark_refused(
        &self,
        root: Uuid,
        id: Uuid,
        error: &sqlx::Error,
    ) -> sqlx::Result<Option<Unclaimed>> {
        let why = format!("the database refuses what its claim writes: {error}");
        let mark = sqlx::query(self.sql.run_mark_stuck.clone()).bind(root).bind(id).bind(&why);
        let marked: Vec<PgRow> = mark.all(&self.sessions).await?;
        Ok((!marked.is_empty()).then_some(Unclaimed::Refused { root, id, why }))
    }
}

pub(super) fn has_run(row: &PgRow) -> bool {
    row.try_get::<Option<Uuid>, _>("id").is_ok_and(|id| id.is_some())
}

pub(super) fn scan(row: &PgRow) -> sqlx::Result<QueueScan> {
    let snapshot = Snapshot::parse(row.try_get("snapshot")?, row.try_get("own_xid")?)
        .map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(QueueScan { at: time(row, "looked_at")?, snapshot })
}

/// Advances the positions as far as a claim of so many runs at most has come.
pub(super) fn record_scan(
    rows: &[PgRow],
    queues: &ClaimQueues,
    limit: usize,
    progress: &mut QueueCursors,
) -> sqlx::Result<()> {
    let Some(row) = rows.first() else { return Ok(()) };
    let scan = scan(row)?;
    let left_queues: Option<Vec<i32>> = row.try_get("left_queues")?;
    let levels: Option<Vec<i32>> = row.try_get("left_levels")?;
    let since: Option<Vec<Option<OffsetDateTime>>> = row.try_get("left_since")?;
    let all: Vec<_> = queues.each().collect();
    let mut left = vec![];
    let starts = left_queues.iter().flatten().zip(levels.iter().flatten()).zip(since.into_iter().flatten());
    for ((nth, level), since) in starts {
        let queue = usize::try_from(nth - 1).ok().and_then(|nth| all.get(nth));
        let level = Priority::ALL.into_iter().find(|it| *it as i32 == *level);
        left.extend(queue.zip(level).map(|(queue, level)| (*queue, level, since)));
    }
    // As in the statement. Where all candidates of a queue were taken, there may be more.
    let candidates_max = (limit + 20).min(1 + 10_000 / queues.len().max(1));
    if limit >= candidates_max {
        let mut taken = BTreeMap::<_, Vec<OffsetDateTime>>::new();
        for row in rows.iter().filter(|row| has_run(row)) {
            let queue: (&str, &str, i32) =
                (row.try_get("topic")?, row.try_get("handler")?, row.try_get("reserved_for")?);
            taken.entry(queue).or_default().push(time(row, "ready_at")?);
        }
        let cut = taken.into_iter().filter(|(_, since)| since.len() >= candidates_max);
        for (queue, since) in cut {
            left.extend(Priority::ALL.map(|level| (queue, level, since.iter().min().copied())));
        }
    }
    for row in rows.iter().filter(|row| has_run(row)) {
        progress.know(row.try_get("handler")?);
    }
    progress.record_ready(queues, &scan, left);
    Ok(())
}
