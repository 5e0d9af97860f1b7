//! Pauses (`pause_*.sql`). A change of them is a change of the topology.

use serde::Deserialize;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::decode::{time, time_if_any};
use super::pool::READ_COMMITTED;
use super::query_ext::FetchExt;
use crate::model::format::system_time;
use crate::model::pause::{Pause, PauseTarget};
use crate::store::{NewPause, PAUSE_MAX, PAUSE_RUNNING_MAX, PauseProgress};
use crate::util::retries::note;

impl PostgresStore {
    pub(crate) async fn pause(&self, asked: &NewPause) -> sqlx::Result<Pause> {
        let NewPause { target, reason, source, limit, new_runs_only } = asked;
        let mut tx = self.begin_topology_change().await?;
        let row = sqlx::query(self.sql.pause_set.clone())
            .bind(target.kind())
            .bind(target.name())
            .bind(reason)
            .bind(source)
            .bind(limit.map(|limit| limit.min(PAUSE_MAX).as_secs_f64()))
            .bind(new_runs_only)
            .one_on(&mut tx)
            .await?;
        self.commit_topology_change(tx).await?;
        Pause::from_row(&row)
    }

    pub(crate) async fn resume(
        &self,
        target: &PauseTarget,
        source: &str,
        reason: Option<&str>,
    ) -> sqlx::Result<Option<Pause>> {
        let mut tx = self.begin_topology_change().await?;
        let end = sqlx::query(self.sql.pause_end.clone())
            .bind(target.kind())
            .bind(target.name())
            .bind(source)
            .bind(reason);
        let Some(row) = end.first_on(&mut tx).await? else {
            return Ok(None);
        };
        self.trim_ended_pauses(&mut tx).await?;
        self.commit_topology_change(tx).await?;
        Pause::from_row(&row).map(Some)
    }

    pub(crate) async fn end_expired_pauses(&self) -> sqlx::Result<Vec<Pause>> {
        let mut tx = self.begin_topology_change().await?;
        let rows = sqlx::query(self.sql.pause_end_expired.clone()).all_on(&mut tx).await?;
        if rows.is_empty() {
            // Another worker has ended them.
            return Ok(vec![]);
        }
        self.trim_ended_pauses(&mut tx).await?;
        self.commit_topology_change(tx).await?;
        rows.iter().map(Pause::from_row).collect()
    }

    pub(crate) async fn pause_progress(&self, target: &PauseTarget) -> sqlx::Result<PauseProgress> {
        let row = sqlx::query(self.sql.pause_progress.clone())
            .bind(target.kind())
            .bind(target.name())
            .bind(i64::try_from(PAUSE_RUNNING_MAX).unwrap_or(i64::MAX))
            .one(&self.sessions)
            .await?;
        let running: i64 = row.try_get("running")?;
        Ok(PauseProgress {
            in_force: row.try_get("stands")?,
            is_known: row.try_get("is_known")?,
            behind: row.try_get("behind")?,
            running: usize::try_from(running).unwrap_or(0),
        })
    }

    pub(crate) async fn runs_left(&self, target: &PauseTarget) -> sqlx::Result<usize> {
        let row = sqlx::query(self.sql.run_count_left.clone())
            .bind(target.kind())
            .bind(target.name())
            .bind(i64::try_from(PAUSE_RUNNING_MAX).unwrap_or(i64::MAX))
            .one(&self.sessions)
            .await?;
        let left: i64 = row.try_get("count")?;
        Ok(usize::try_from(left).unwrap_or(0))
    }
}

impl PostgresStore {
    async fn trim_ended_pauses(&self, tx: &mut PgConnection) -> sqlx::Result<()> {
        sqlx::query(self.sql.pause_trim_ended.clone()).execute(tx).await?;
        Ok(())
    }

    async fn begin_topology_change(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_topology(&mut tx).await?;
        Ok(tx)
    }

    /// Commits it, and notifies all processes, this one included.
    async fn commit_topology_change(&self, mut tx: Transaction<'static, Postgres>) -> sqlx::Result<()> {
        self.notification(Uuid::nil()).execute(&mut *tx).await?;
        tx.commit().await.inspect_err(note)
    }
}

impl Pause {
    #[doc(hidden)]
    pub fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let target = PauseTarget::stored(row.try_get("kind")?, row.try_get("name")?);
        Ok(Self {
            target: target.ok_or_else(|| sqlx::Error::Decode("the kind of a pause is unknown".into()))?,
            reason: row.try_get("reason")?,
            source: row.try_get("source")?,
            since: system_time(time(row, "since")?),
            until: time_if_any(row, "until")?.map(system_time),
            new_runs_only: row.try_get("new_runs_only")?,
        })
    }
}

#[derive(Deserialize)]
struct PauseRow {
    kind: String,
    name: String,
    reason: Option<String>,
    source: String,
    /// Since 1970, in microseconds.
    since: i64,
    until: Option<i64>,
    new_runs_only: bool,
}

/// The pauses in a column with the result of `scoop.pauses_of`.
pub fn pauses(row: &PgRow, column: &str) -> sqlx::Result<Vec<Pause>> {
    let rows: Option<Json<Vec<PauseRow>>> = row.try_get(column)?;
    let at = |micros| system_time(OffsetDateTime::UNIX_EPOCH + ::time::Duration::microseconds(micros));
    let read = |row: PauseRow| {
        let PauseRow { kind, name, reason, source, since, until, new_runs_only } = row;
        let target = PauseTarget::stored(&kind, name)?;
        Some(Pause { target, reason, source, since: at(since), until: until.map(at), new_runs_only })
    };
    Ok(rows.into_iter().flat_map(|Json(rows)| rows).filter_map(read).collect())
}
