//! Deletion of finished hierarchies and signals; see `0009_retention.sql`.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, Postgres, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::decode::time;
use super::query_ext::FetchExt;
use crate::model::pruning::{PruneResult, PruneVerdict};
use crate::model::retention::Retention;
use crate::store::{DueBatch, DueSettlement, PruneMode, PruneTimes};

/// The longest age that the server can calculate with, in seconds: about 1,000 years.
const SECONDS_MAX: f64 = 3.2e10;

impl PostgresStore {
    /// Those of these hierarchies that would be deleted.
    pub async fn deletable(&self, roots: &[Uuid], times: PruneTimes) -> sqlx::Result<Vec<Uuid>> {
        let (committed, rolled_back, is_by_topic) = match times {
            PruneTimes::Age(age) => (seconds(age), seconds(age), false),
            PruneTimes::ByTopic(it) => (in_seconds(it.committed), in_seconds(it.rolled_back), true),
        };
        sqlx::query_scalar(self.sql.prune_deletable.clone())
            .bind(roots.to_vec())
            .bind(committed)
            .bind(rolled_back)
            .bind(is_by_topic)
            .all(&self.sessions)
            .await
    }

    pub(crate) async fn archive_parts(&self, root: Uuid) -> sqlx::Result<Vec<Uuid>> {
        sqlx::query_scalar(self.sql.archive_parts.clone()).bind(root).all(&self.sessions).await
    }

    pub(crate) async fn archive_rows(&self, parts: &[Uuid]) -> sqlx::Result<Vec<String>> {
        sqlx::query_scalar(self.sql.archive_rows.clone()).bind(parts.to_vec()).all(&self.sessions).await
    }

    pub(crate) async fn claim_due(
        &self,
        worker: Uuid,
        retention: Retention,
        limit: usize,
    ) -> sqlx::Result<Option<DueBatch>> {
        let row = sqlx::query(self.sql.retention_next.clone())
            .bind(worker)
            .bind(in_seconds(retention.committed))
            .bind(in_seconds(retention.rolled_back))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(retention.is_archived)
            .one(&self.sessions)
            .await?;
        let Some(roots) = row.try_get("roots")? else { return Ok(None) };
        let has_more = row.try_get("is_more")?;
        let behind = Duration::try_from_secs_f64(row.try_get("behind")?).unwrap_or_default();
        Ok(Some(DueBatch { roots, has_more, behind }))
    }

    pub(crate) async fn delete_due(
        &self,
        worker: Uuid,
        retention: Retention,
        settlement: &DueSettlement,
    ) -> sqlx::Result<Vec<PruneResult>> {
        let DueSettlement { due, archived, retry_after } = settlement;
        let settle = sqlx::query(self.sql.retention_settle.clone())
            .bind(worker)
            .bind(in_seconds(retention.committed))
            .bind(in_seconds(retention.rolled_back))
            .bind(due.roots.clone())
            .bind(archived.clone())
            .bind(!due.has_more)
            .bind(seconds(*retry_after));
        self.deletion(settle).await?.iter().map(PruneResult::from_row).collect()
    }

    pub(crate) async fn put_off(
        &self,
        root: Uuid,
        error: &str,
        retry_after: Duration,
    ) -> sqlx::Result<String> {
        let topic: Option<String> = sqlx::query_scalar(self.sql.retention_put_off.clone())
            .bind(root)
            .bind(error)
            .bind(seconds(retry_after))
            .one(&self.sessions)
            .await?;
        Ok(topic.unwrap_or_default())
    }

    pub(crate) async fn prune_signals(
        &self,
        age: Duration,
        limit: u32,
        mode: PruneMode,
    ) -> sqlx::Result<u64> {
        let pruned: i64 = sqlx::query_scalar(self.sql.prune_signals.clone())
            .bind(seconds(age))
            .bind(i64::from(limit))
            .bind(mode == PruneMode::Count)
            .one(&self.sessions)
            .await?;
        Ok(pruned.unsigned_abs())
    }

    pub(crate) async fn prune_keys(&self, limit: u32, mode: PruneMode) -> sqlx::Result<u64> {
        let pruned: i64 = sqlx::query_scalar(self.sql.prune_keys.clone())
            .bind(i64::from(limit))
            .bind(mode == PruneMode::Count)
            .one(&self.sessions)
            .await?;
        Ok(pruned.unsigned_abs())
    }

    pub(crate) async fn key_valid_until(&self, message: Uuid) -> sqlx::Result<Option<OffsetDateTime>> {
        let row = sqlx::query(self.sql.key_valid_until.clone()).bind(message).first(&self.sessions).await?;
        row.map(|row| time(&row, "until")).transpose()
    }
}

impl PostgresStore {
    /// Executes a statement that deletes hierarchies. After a refusal it waits until the server has released the locks: the error
    /// comes before, and the next attempt on another connection would find its own hierarchies locked.
    pub async fn deletion(&self, statement: Query<'_, Postgres, PgArguments>) -> sqlx::Result<Vec<PgRow>> {
        let deletion = self.sessions.run(async |session| {
            let rows = statement.all_on(session).await;
            if rows.is_err() {
                // The answer comes after the end of the transaction; the error is reported in any case.
                let _ = session.ping().await;
            }
            rows
        });
        deletion.await
    }
}

impl PruneResult {
    /// Decodes a row of `scoop.prune`.
    pub fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let verdict = match row.try_get("verdict")? {
            "deleted" => PruneVerdict::Deleted,
            "recent" => PruneVerdict::Recent,
            "failed" => PruneVerdict::Failed,
            "needed" => PruneVerdict::Needed,
            "busy" => PruneVerdict::Busy,
            "unarchived" => PruneVerdict::Unarchived,
            "absent" => PruneVerdict::Absent,
            _ => PruneVerdict::Unfinished,
        };
        let [messages, events] = [row.try_get("message_count")?, row.try_get("event_count")?];
        Ok(Self { verdict, messages: i64::unsigned_abs(messages), events: i64::unsigned_abs(events) })
    }
}

/// An age that the server can calculate with.
pub fn seconds(age: Duration) -> f64 {
    age.as_secs_f64().min(SECONDS_MAX)
}

/// For ever is infinity, and so is a time that the server cannot calculate with.
pub(super) fn in_seconds(time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds < SECONDS_MAX { seconds } else { f64::INFINITY }
}
