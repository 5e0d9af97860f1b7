//! Queues with a limit; see `queue_*.sql`.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::decode::unsigned;
use super::query_ext::FetchExt;
use crate::store::queue_limit::limited_topics;
use crate::store::{LimitedTopics, QueueLength};

impl PostgresStore {
    pub(crate) async fn limited_topics(&self) -> sqlx::Result<LimitedTopics> {
        let rows: Vec<(String, String)> =
            sqlx::query_as(self.sql.queue_list_topics.clone()).all(&self.sessions).await?;
        Ok(limited_topics(rows))
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
}
