//! The state of hierarchies, for clients.

use std::collections::BTreeSet;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::decode::failure;
use super::query_ext::FetchExt;
use crate::store::{HandlerOutcome, MessageStatus, PostgresStore, StatusStorage, Waited};
use crate::tree::{FAILURE_BYTES_MAX, LeftOut, RunInfo, RunRow, TreeBounds, TreeRows};

impl HandlerOutcome {
    fn from_row(row: &PgRow) -> sqlx::Result<Option<Self>> {
        if row.try_get::<Option<&str>, _>("handler")?.is_none() {
            return Ok(None);
        }
        Ok(Some(match row.try_get("type")? {
            Some("COMMITTED") => Self::Committed,
            Some("ROLLED_BACK") => Self::RolledBack(failure(row, "cause")?),
            Some("ROLLBACK_FAILED") => {
                Self::RollbackFailed { failure: failure(row, "exception")?, cause: failure(row, "cause")? }
            }
            _ => Self::Unfinished,
        }))
    }
}

impl StatusStorage for PostgresStore {
    async fn status(&self, root: Uuid, message: Uuid) -> sqlx::Result<MessageStatus> {
        let rows =
            sqlx::query(self.sql.message_status.clone()).bind(root).bind(message).all(&self.sessions).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let handlers = rows.iter().map(HandlerOutcome::from_row).filter_map(Result::transpose);
        Ok(MessageStatus {
            emitted: row.try_get("emitted")?,
            in_progress: row.try_get("in_progress")?,
            handlers: handlers.collect::<Result<_, _>>()?,
        })
    }

    async fn ended(&self, waited: &[Waited]) -> sqlx::Result<BTreeSet<Uuid>> {
        let ended = sqlx::query_scalar(self.sql.message_ended.clone())
            .bind(waited.iter().map(|it| it.root).collect::<Vec<_>>())
            .bind(waited.iter().map(|it| it.message).collect::<Vec<_>>())
            .bind(waited.iter().map(|it| it.decision).collect::<Vec<_>>());
        Ok(ended.all(&self.sessions).await?.into_iter().collect())
    }

    async fn root_message(&self, root: Uuid) -> sqlx::Result<Option<Uuid>> {
        sqlx::query_scalar(self.sql.message_find_by_root.clone()).bind(root).first(&self.sessions).await
    }

    async fn tree(&self, message: Uuid, extent: TreeBounds) -> sqlx::Result<TreeRows> {
        let stored = |bound: Option<usize>| bound.map(|bound| i32::try_from(bound).unwrap_or(i32::MAX - 1));
        let tree = sqlx::query(self.sql.run_tree.clone())
            .bind(message)
            .bind(stored(extent.depth))
            .bind(stored(extent.runs))
            .bind(extent.run)
            .bind(stored(extent.events))
            .bind(stored(Some(RunInfo::LEFT_OUT_MAX)))
            .bind(stored(extent.unhandled()))
            .bind(stored(extent.launched()))
            .bind(stored(extent.launched_in_all()))
            .bind(FAILURE_BYTES_MAX as i64);
        let rows = self.sessions.read(async |session| tree.fetch_all(session).await).await?;
        let is_so = |column| rows.iter().any(|row| row.try_get(column).unwrap_or_default());
        let left_out = LeftOut { deeper_runs: is_so("has_more"), launched: is_so("more_emitted") };
        Ok(TreeRows::new(rows.iter().map(RunRow::from_row).collect(), left_out, extent))
    }

    async fn is_reachable(&self, root: Uuid, message: Uuid) -> sqlx::Result<bool> {
        let query = sqlx::query_scalar(self.sql.run_is_reachable.clone()).bind(root).bind(message);
        Ok(query.first(&self.sessions).await?.unwrap_or_default())
    }
}
