//! Queues with a limit; see `queue_*.sql` and `scoop.lease_places`.

use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use super::PostgresStore;
use super::decode::unsigned;
use super::query_ext::FetchExt;
use crate::store::queue::limited_topics;
use crate::store::{Lease, LeaseRequest, LimitedTopics, QueueLength};

impl PostgresStore {
    pub(crate) async fn limited_topics(&self) -> sqlx::Result<LimitedTopics> {
        let pairs: Vec<(String, String)> =
            sqlx::query_as(self.sql.queue_list_topics.clone()).all(&self.sessions).await?;
        Ok(limited_topics(pairs))
    }

    /// The queues with a limit: of these sagas, or all.
    pub async fn queue_lengths(&self, of: Option<&[String]>) -> sqlx::Result<Vec<QueueLength>> {
        let read = |row: &PgRow| -> sqlx::Result<QueueLength> {
            let (limit, waiting) = (row.try_get("most")?, row.try_get::<i64, _>("waiting")?);
            let waiting = usize::try_from(waiting).unwrap_or(0);
            Ok(QueueLength { saga: row.try_get("saga")?, limit: unsigned(limit), waiting })
        };
        let rows = sqlx::query(self.sql.queue_list.clone()).bind(of).all(&self.sessions).await?;
        rows.iter().map(read).collect()
    }

    pub(crate) async fn lease_places(&self, asked: &LeaseRequest) -> sqlx::Result<Option<Lease>> {
        let stored = |places: usize| i64::try_from(places).unwrap_or(i64::MAX);
        let lease = sqlx::query(self.sql.queue_lease.clone())
            .bind(asked.saga.clone())
            .bind(asked.holder)
            .bind(stored(asked.in_use))
            .bind(asked.in_doubt.clone())
            .bind(stored(asked.needed));
        let row = lease.one(&self.sessions).await?;
        let Some(most) = row.try_get::<Option<i64>, _>("most")? else { return Ok(None) };
        let granted: i64 = row.try_get("granted")?;
        Ok(Some(Lease {
            most: u32::try_from(most).unwrap_or(0),
            granted: usize::try_from(granted).unwrap_or(0),
            is_scarce: row.try_get("is_scarce")?,
            launched: row.try_get::<Vec<Uuid>, _>("launched")?,
        }))
    }
}
