//! What clients ask of the database, one function for each statement.

use scoop_core::Failure;
use serde::Serialize;
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, Row};
use uuid::Uuid;

use super::Store;
use crate::tree::RunRow;

/// A message that starts a hierarchy of its own.
#[derive(Debug, Serialize)]
pub(crate) struct Launched {
    pub(crate) id: Uuid,
    pub(crate) root: Uuid,
    pub(crate) topic: &'static str,
    pub(crate) payload: Value,
}

/// What became of a message with one of its handlers.
#[derive(Debug)]
pub(crate) enum HandlerOutcome {
    Unfinished,
    Committed,
    RolledBack(Failure),
    RollbackFailed(Failure),
}

/// How far a message is.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) emitted: bool,
    pub(crate) unfinished: i64,
    pub(crate) handlers: Vec<HandlerOutcome>,
}

impl Store {
    /// Publishes messages and starts a run for each listed handler; says which handlers.
    pub(crate) async fn launch(
        &self,
        executor: impl PgExecutor<'_>,
        messages: &[Launched],
    ) -> sqlx::Result<Vec<String>> {
        let rows =
            sqlx::query(self.sql.message_launch.clone()).bind(Json(messages)).fetch_all(executor).await?;
        rows.iter().map(|row| row.try_get("handler")).collect()
    }

    /// How far a root message is. First the working set, then the log: a run is on record before
    /// it leaves the working set, never after.
    pub(crate) async fn standing(&self, root: Uuid, message: Uuid) -> sqlx::Result<Standing> {
        let mut connection = self.pool.acquire().await?;
        let row = sqlx::query(self.sql.message_unfinished.clone())
            .bind(root)
            .bind(message)
            .fetch_one(&mut *connection)
            .await?;
        let handlers = self.handler_outcomes(&mut connection, message).await?;
        Ok(Standing { emitted: row.try_get("emitted")?, unfinished: row.try_get("unfinished")?, handlers })
    }

    async fn handler_outcomes(
        &self,
        connection: &mut PgConnection,
        message: Uuid,
    ) -> sqlx::Result<Vec<HandlerOutcome>> {
        let rows = sqlx::query(self.sql.message_outcome.clone()).bind(message).fetch_all(connection).await?;
        let outcome = |row: &sqlx::postgres::PgRow| {
            let kind: Option<String> = row.try_get("type")?;
            let failure = |column| -> sqlx::Result<Failure> {
                let failure: Option<Json<Failure>> = row.try_get(column)?;
                let unknown = || Failure::new("Unknown", "no failure is on record", "scoop");
                Ok(failure.map_or_else(unknown, |Json(failure)| failure))
            };
            Ok(match kind.as_deref() {
                Some("COMMITTED") => HandlerOutcome::Committed,
                Some("ROLLED_BACK") => HandlerOutcome::RolledBack(failure("cause")?),
                Some("ROLLBACK_FAILED") => HandlerOutcome::RollbackFailed(failure("exception")?),
                _ => HandlerOutcome::Unfinished,
            })
        };
        rows.iter().map(outcome).collect()
    }

    /// The message that started a hierarchy.
    pub(crate) async fn root_message(&self, root: Uuid) -> sqlx::Result<Option<Uuid>> {
        sqlx::query_scalar(self.sql.message_of_root.clone()).bind(root).fetch_optional(&self.pool).await
    }

    /// The runs of a hierarchy, parents before their children.
    pub(crate) async fn tree(&self, message: Uuid) -> sqlx::Result<Vec<RunRow>> {
        let rows = sqlx::query(self.sql.run_tree.clone()).bind(message).fetch_all(&self.pool).await?;
        rows.iter().map(RunRow::from_row).collect()
    }
}
