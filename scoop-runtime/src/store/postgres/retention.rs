//! Deletion of finished hierarchies and signals; see `0002_functions.sql`.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use super::query_ext::FetchExt;
use crate::store::{PruneMode, PrunePage, PruneResult, PruneVerdict, RetentionStorage};

/// The number of launches read by one statement.
const LAUNCHES_MAX: i64 = 1_000;

/// The longest age that the server can calculate with, in seconds: about 1,000 years.
const SECONDS_MAX: f64 = 3.2e10;

impl RetentionStorage for PostgresStore {
    async fn prune_page(&self, after: Option<Uuid>, age: Duration) -> sqlx::Result<PrunePage> {
        let rows = sqlx::query(self.sql.prune_page.clone())
            .bind(after.unwrap_or_default())
            .bind(seconds(age))
            .bind(LAUNCHES_MAX)
            .all(&self.sessions)
            .await?;
        let mut page = PrunePage::default();
        for row in &rows {
            page.roots.extend(row.try_get::<Option<Uuid>, _>("root")?);
        }
        if let Some(last) = rows.last() {
            page.next = Some(last.try_get("message_id")?);
        }
        Ok(page)
    }

    async fn prune(&self, roots: &[Uuid], age: Duration, mode: PruneMode) -> sqlx::Result<Vec<PruneResult>> {
        let pruned = sqlx::query(self.sql.prune_hierarchies.clone())
            .bind(roots.to_vec())
            .bind(seconds(age))
            .bind(mode == PruneMode::Count)
            .all(&self.sessions)
            .await?;
        pruned.iter().map(PruneResult::from_row).collect()
    }

    async fn prune_signals(&self, age: Duration, limit: u32, mode: PruneMode) -> sqlx::Result<u64> {
        let pruned: i64 = sqlx::query_scalar(self.sql.prune_signals.clone())
            .bind(seconds(age))
            .bind(i64::from(limit))
            .bind(mode == PruneMode::Count)
            .one(&self.sessions)
            .await?;
        Ok(pruned.unsigned_abs())
    }
}

impl PruneResult {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let verdict = match row.try_get("verdict")? {
            "deleted" => PruneVerdict::Deleted,
            "recent" => PruneVerdict::Recent,
            "failed" => PruneVerdict::Failed,
            "needed" => PruneVerdict::Needed,
            "busy" => PruneVerdict::Busy,
            "absent" => PruneVerdict::Absent,
            _ => PruneVerdict::Unfinished,
        };
        let [messages, events] = [row.try_get("message_count")?, row.try_get("event_count")?];
        Ok(Self { verdict, messages: i64::unsigned_abs(messages), events: i64::unsigned_abs(events) })
    }
}

fn seconds(age: Duration) -> f64 {
    age.as_secs_f64().min(SECONDS_MAX)
}
