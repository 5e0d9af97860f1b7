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
use crate::store::{ClaimStorage, ClaimedRun, Claimer, Lanes, ParentRef, QueueCursors, Suspect, Unclaimed};
use crate::telemetry::metrics;
use crate::util::ids;

/// How many runs of each handler a worker executes.
type Counts = BTreeMap<String, usize>;

/// The arguments of a claim.
pub(super) struct Claim<'a, S> {
    claimer: Claimer<'a>,
    lanes: &'a Lanes,
    running_counts: S,
}

impl<'a> Claim<'a, Counts> {
    /// A claim from the queues of one saga, or of one run: how many runs of others the worker executes does not matter.
    pub(super) fn uncounted(claimer: Claimer<'a>, lanes: &'a Lanes) -> Self {
        Self { claimer, lanes, running_counts: Counts::new() }
    }
}

impl ClaimStorage for PostgresStore {
    async fn lanes_ready(&self, lanes: &Lanes, progress: &QueueCursors) -> sqlx::Result<Lanes> {
        let rows = sqlx::query_as(self.sql.handler_list_ready.clone())
            .bind(&lanes.topics)
            .bind(&lanes.handlers)
            .bind(&lanes.reserved_for)
            .bind(progress.of(lanes, Priority::Normal))
            .bind(progress.of(lanes, Priority::High))
            .bind(progress.of(lanes, Priority::Low));
        let ready: Vec<(String, String, i32)> = rows.all(&self.sessions).await?;
        let ready: HashSet<_> =
            ready.iter().map(|(topic, handler, lane)| (&**topic, &**handler, *lane)).collect();
        Ok(lanes.only(|lane| ready.contains(&lane)))
    }

    async fn claim(
        &self,
        claimer: Claimer<'_>,
        lanes: &Lanes,
        limit: usize,
        running_counts: &BTreeMap<String, usize>,
        progress: &mut QueueCursors,
    ) -> sqlx::Result<Vec<Result<ClaimedRun, Unclaimed>>> {
        let claim = Claim { claimer, lanes, running_counts };
        match self.claim_from(&claim, limit, progress, None).await {
            // Boxed, so that the usual claim is not as large as this one.
            Err(error) if is_of_contents(&error) => Box::pin(self.claim_apart(&claim, limit)).await,
            claimed => claimed,
        }
    }

    async fn claim_suspect(
        &self,
        claimer: Claimer<'_>,
        lanes: &Lanes,
        suspect: &Suspect,
    ) -> sqlx::Result<Option<Result<ClaimedRun, Unclaimed>>> {
        let lanes = &lanes.only(|lane| lane == suspect.lane());
        if lanes.len() == 0 {
            return Ok(None);
        }
        let mut from_there = QueueCursors::at(suspect);
        let claim = Claim::uncounted(claimer, lanes);
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
        for row in &rows {
            let claimed = read_claimed(row, identifier, progress)?;
            if cfg!(feature = "metrics") {
                let waited = (OffsetDateTime::now_utc() - time(row, "ready_at")?).as_seconds_f64();
                metrics::queue_seconds(row.try_get("handler")?).record(waited.max(0.0));
            }
            all.push(claimed);
        }
        Ok(all)
    }

    /// The statement of a claim.
    pub(super) fn claim_query<'q, S: Serialize + Send + Sync>(
        &'q self,
        claim: &'q Claim<'_, S>,
        limit: usize,
        progress: &QueueCursors,
        only: Option<&'q [Uuid]>,
    ) -> Query<'q, Postgres, PgArguments> {
        let Claim { claimer: Claimer { worker, identifier }, lanes, running_counts } = claim;
        sqlx::query(self.sql.run_claim.clone())
            .bind(worker)
            .bind(identifier)
            .bind(&lanes.topics)
            .bind(&lanes.handlers)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(Json(running_counts))
            .bind((0..limit).map(|_| ids::now_v7()).collect::<Vec<_>>())
            .bind(progress.of(lanes, Priority::Normal))
            .bind(&lanes.reserved_for)
            .bind(lanes.topology)
            .bind(only)
            .bind(progress.of(lanes, Priority::High))
            .bind(progress.of(lanes, Priority::Low))
    }

    /// Claims ready runs in parts. A part that the database refuses is halved until the run at fault is alone, which is
    /// then marked stuck. So a claim with one such run costs as many statements as the logarithm of its size.
    async fn claim_apart<S: Serialize + Send + Sync>(
        &self,
        claim: &Claim<'_, S>,
        limit: usize,
    ) -> sqlx::Result<Vec<Result<ClaimedRun, Unclaimed>>> {
        let ready = self.ready(claim.lanes, limit).await?;
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

    pub(super) async fn ready(&self, lanes: &Lanes, limit: usize) -> sqlx::Result<Vec<(Uuid, Uuid)>> {
        sqlx::query_as(self.sql.run_list_ready.clone())
            .bind(&lanes.topics)
            .bind(&lanes.handlers)
            .bind(&lanes.reserved_for)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .all(&self.sessions)
            .await
    }

    /// Marks a run as stuck whose claim the database refuses with this error, unless it is not ready any more. A run that
    /// another participant has executed has ended instead.
    pub(super) async fn mark_refused(
        &self,
        root: Uuid,
        id: Uuid,
        error: &sqlx::Error,
    ) -> sqlx::Result<Option<Unclaimed>> {
        let ended = sqlx::query(self.sql.run_end_recorded.clone()).bind(root).bind(id);
        if let Some(row) = ended.first(&self.sessions).await? {
            let has_parent = row.try_get::<Option<Uuid>, _>("id")?.is_some();
            let parent = if has_parent { Some(ParentRef::from_row(&row)?) } else { None };
            return Ok(Some(Unclaimed::EndedElsewhere { root, parent }));
        }
        let why = format!("the database refuses what its claim writes: {error}");
        let mark = sqlx::query(self.sql.run_mark_stuck.clone()).bind(root).bind(id).bind(&why);
        let marked: Vec<PgRow> = mark.all(&self.sessions).await?;
        Ok((!marked.is_empty()).then_some(Unclaimed::Refused { root, id, why }))
    }
}

/// Reads a claimed run, and advances its queue.
pub(super) fn read_claimed(
    row: &PgRow,
    identifier: &str,
    progress: &mut QueueCursors,
) -> sqlx::Result<Result<ClaimedRun, Unclaimed>> {
    let lane = (row.try_get("topic")?, row.try_get("handler")?, row.try_get("reserved_for")?);
    let claimed = ClaimedRun::from_row(row, identifier)?;
    // The level of a run that cannot be read is unknown. A cursor that stays behind skips no run.
    if let Ok(claimed) = &claimed {
        progress.take(lane, Priority::of(&claimed.run.context), time(row, "ready_at")?);
    }
    Ok(claimed)
}
