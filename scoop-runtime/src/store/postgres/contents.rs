//! Messages, values and entities, for operators (`run_contents.sql`, `entity_*.sql`).

use std::collections::BTreeSet;

use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;

use super::PostgresStore;
use super::decode::time;
use super::query_ext::FetchExt;
use crate::find::{CONTENT_BYTES_MAX, ContentsKey, EntityEventRow, EntityRow, StoredContent, StoredContents};
use crate::store::ContentStorage;

impl ContentStorage for PostgresStore {
    async fn redacted_fields(&self) -> sqlx::Result<BTreeSet<String>> {
        let fields = sqlx::query_scalar(self.sql.redaction_list.clone()).all(&self.sessions).await?;
        Ok(fields.into_iter().collect())
    }

    async fn run_contents(
        &self,
        runs: &[ContentsKey],
        values_max: usize,
    ) -> sqlx::Result<Vec<StoredContents>> {
        let rows = sqlx::query(self.sql.run_contents.clone())
            .bind(runs.iter().map(|run| run.run).collect::<Vec<_>>())
            .bind(runs.iter().map(|run| run.message).collect::<Vec<_>>())
            .bind(runs.iter().map(|run| run.handler.clone()).collect::<Vec<_>>())
            .bind(i64::try_from(values_max).unwrap_or(i64::MAX))
            .bind(i32::try_from(CONTENT_BYTES_MAX).unwrap_or(i32::MAX))
            .all(&self.sessions)
            .await?;
        let mut all: Vec<_> = runs.iter().map(|_| StoredContents::default()).collect();
        for row in &rows {
            let nth = usize::try_from(row.try_get::<i64, _>("nth")? - 1).ok();
            let Some(contents) = nth.and_then(|nth| all.get_mut(nth)) else { continue };
            let Some(content) = StoredContent::from_row(row)? else { continue };
            match row.try_get("kind")? {
                "message" => contents.message = Some(content),
                "context" => contents.context = Some(content),
                _ => contents.values.push((row.try_get("name")?, content)),
            }
        }
        Ok(all)
    }

    async fn entity_names(&self, limit: u32) -> sqlx::Result<Vec<String>> {
        let names = sqlx::query_scalar(self.sql.entity_names.clone()).bind(i64::from(limit));
        names.all(&self.sessions).await
    }

    async fn named_entity_keys(&self, name: &str, after: &str, limit: u32) -> sqlx::Result<Vec<String>> {
        let read = sqlx::query_scalar(self.sql.entity_keys.clone());
        read.bind(name.to_owned()).bind(after.to_owned()).bind(i64::from(limit)).all(&self.sessions).await
    }

    async fn entity_row(&self, name: &str, key: &str) -> sqlx::Result<Option<EntityRow>> {
        let row = self.entity_query(name, key).first(&self.sessions).await?;
        let read = |row: PgRow| -> sqlx::Result<_> {
            Ok(EntityRow { version: row.try_get("version")?, state: content(&row, "state") })
        };
        row.map(read).transpose()
    }

    async fn entity_event_rows(
        &self,
        name: &str,
        key: &str,
        after: i64,
        limit: u32,
    ) -> sqlx::Result<Vec<EntityEventRow>> {
        let rows = self.events_query(name, key, after, limit).all(&self.sessions).await?;
        let read = |row: &PgRow| -> sqlx::Result<_> {
            Ok(EntityEventRow {
                version: row.try_get("version")?,
                at: time(row, "at")?,
                message: row.try_get("message_id")?,
                run: row.try_get("run")?,
                topic: row.try_get("topic")?,
                payload: content(row, "payload"),
            })
        };
        rows.iter().map(read).collect()
    }
}

/// The value in this column; `None` if it is null.
fn content(row: &PgRow, column: &str) -> Option<StoredContent> {
    match row.try_get::<Option<Value>, _>(column) {
        Ok(value) => value.map(StoredContent::of),
        Err(error) => Some(StoredContent::Unreadable(error.to_string())),
    }
}

impl StoredContent {
    /// The value of a row; `None` if it is null.
    fn from_row(row: &PgRow) -> sqlx::Result<Option<Self>> {
        let Some(bytes) = row.try_get::<Option<i32>, _>("bytes")? else { return Ok(None) };
        Ok(Some(match row.try_get::<Option<Json<Value>>, _>("value") {
            Ok(Some(Json(value))) => Self::Read(value),
            Ok(None) => Self::TooLarge { bytes: u64::from(bytes.unsigned_abs()) },
            Err(error) => Self::Unreadable(error.to_string()),
        }))
    }
}
