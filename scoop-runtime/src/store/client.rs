//! What clients ask of the database, one function for each statement.

use scoop_core::{Context, Failure};
use serde::Serialize;
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::Store;
use super::alone::Alone;
use super::rows::{failure, timestamps};
use crate::tree::RunRow;

/// A message that starts a hierarchy of its own.
#[derive(Debug, Serialize)]
pub(crate) struct Launched {
    pub(crate) id: Uuid,
    pub(crate) root: Uuid,
    pub(crate) topic: &'static str,
    pub(crate) payload: Value,
    context: Context,
    #[serde(with = "time::serde::rfc3339::option")]
    due: Option<OffsetDateTime>,
    #[serde(serialize_with = "timestamps")]
    deadlines: Vec<OffsetDateTime>,
}

/// Under which ids messages are known that may be launched only once.
const UNIQUE: Uuid = Uuid::from_u128(0x6d1f_46a2_0c5e_4e0b_9d0a_7b1b_5a3c_9e21);

impl Launched {
    /// A message with fresh ids.
    pub(crate) fn new(topic: &'static str, payload: Value) -> Self {
        let (id, root) = (Uuid::now_v7(), Uuid::now_v7());
        Self { id, root, topic, payload, context: Context::default(), due: None, deadlines: vec![] }
    }

    /// The same message, whose ids follow from its topic and the key: it cannot be there twice.
    pub(crate) fn unique(mut self, key: &str) -> Self {
        let namespace = Uuid::new_v5(&UNIQUE, self.topic.as_bytes());
        self.id = Uuid::new_v5(&namespace, key.as_bytes());
        self.root = Uuid::new_v5(&self.id, b"root");
        self
    }

    /// The same message, with this context.
    pub(crate) fn with(mut self, context: Context) -> Self {
        self.due = context.not_before();
        self.deadlines = context.give_up_at(false);
        self.context = context;
        self
    }

    /// Whether something becomes due at a certain time because of this.
    pub(crate) fn sets_a_time(&self) -> bool {
        self.due.is_some() || !self.deadlines.is_empty()
    }
}

/// What became of a launch.
#[derive(Debug)]
pub(crate) struct Launch {
    /// How many of the messages were not there before.
    pub(crate) launched: i64,
    /// Who has something to do.
    pub(crate) handlers: Vec<String>,
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
    /// Publishes messages and starts a run for each listed handler.
    pub(crate) async fn launch(
        &self,
        executor: impl PgExecutor<'_>,
        messages: &[impl Serialize + Sync],
    ) -> sqlx::Result<Launch> {
        // The transaction may be one of the user, in which names may be taken.
        let named = self.sessions.keeps_statements();
        let launch = sqlx::query(self.sql.message_launch.clone()).bind(Json(messages)).persistent(named);
        let row = launch.fetch_one(executor).await?;
        Ok(Launch { launched: row.try_get("launched")?, handlers: row.try_get("handlers")? })
    }

    /// The same, in a transaction of its own.
    pub(crate) async fn launch_alone(&self, messages: &[impl Serialize + Sync]) -> sqlx::Result<Launch> {
        self.sessions.run(async |session| self.launch(session, messages).await).await
    }

    /// How far a root message is. First the working set, then the log: a run is on record before
    /// it leaves the working set, never after.
    pub(crate) async fn standing(&self, root: Uuid, message: Uuid) -> sqlx::Result<Standing> {
        let mut connection = self.sessions.lend().await?;
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
            Ok(match kind.as_deref() {
                Some("COMMITTED") => HandlerOutcome::Committed,
                Some("ROLLED_BACK") => HandlerOutcome::RolledBack(failure(row, "cause")?),
                Some("ROLLBACK_FAILED") => HandlerOutcome::RollbackFailed(failure(row, "exception")?),
                _ => HandlerOutcome::Unfinished,
            })
        };
        rows.iter().map(outcome).collect()
    }

    /// The message that started a hierarchy.
    pub(crate) async fn root_message(&self, root: Uuid) -> sqlx::Result<Option<Uuid>> {
        sqlx::query_scalar(self.sql.message_of_root.clone()).bind(root).first(&self.sessions).await
    }

    /// The runs of a hierarchy, parents before their children.
    pub(crate) async fn tree(&self, message: Uuid) -> sqlx::Result<Vec<RunRow>> {
        let rows = sqlx::query(self.sql.run_tree.clone()).bind(message).all(&self.sessions).await?;
        rows.iter().map(RunRow::from_row).collect()
    }
}
