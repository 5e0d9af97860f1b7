//! Launches messages that start hierarchies of their own (`message_insert_*.sql`).

use scoop_core::Context;
use serde::Serialize;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, Postgres, Row, SqlStr};

use super::PostgresStore;
use crate::store::{Claimer, LaunchResult, LaunchStorage, NewMessage, Unhandled, is_bulky};
use crate::util::{ids, retries};

impl NewMessage {
    /// Its context, if that says anything.
    fn context_json(&self) -> Option<Json<&Context>> {
        Some(Json(&self.context)).filter(|context| !context.is_empty())
    }

    fn insert_query(&self, statement: SqlStr) -> Query<'_, Postgres, PgArguments> {
        sqlx::query(statement)
            .bind(self.id)
            .bind(self.root)
            .bind(ids::now_v7())
            .bind(ids::now_v7())
            .bind(&*self.topic)
            .bind(&self.payload)
            .bind(self.context_json())
            .bind(self.due)
            .bind(self.give_up_at())
    }

    /// Its statement, if it is the only one, and the launching worker has room for some of its runs.
    fn insert_claiming_query<'a>(
        &'a self,
        statement: SqlStr,
        claimer: Claimer<'a>,
        topology: i64,
    ) -> Query<'a, Postgres, PgArguments> {
        sqlx::query(statement)
            .bind(self.id)
            .bind(self.root)
            .bind(ids::now_v7())
            .bind(&*self.topic)
            .bind(&self.payload)
            .bind(self.context_json())
            .bind(claimer.worker)
            .bind(claimer.identifier)
            .bind(self.local_runs.keys().map(String::as_str).collect::<Vec<_>>())
            .bind(self.local_runs.values().copied().collect::<Vec<_>>())
            .bind(self.local_runs.values().map(|_| ids::now_v7()).collect::<Vec<_>>())
            .bind(topology)
    }
}

fn insert_many_query(statement: SqlStr, messages: &[NewMessage]) -> Query<'_, Postgres, PgArguments> {
    let each = || messages.iter();
    sqlx::query(statement)
        .bind(each().map(|message| message.id).collect::<Vec<_>>())
        .bind(each().map(|message| message.root).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(each().map(|message| &*message.topic).collect::<Vec<_>>())
        .bind(each().map(|message| Json(&message.payload)).collect::<Vec<_>>())
        .bind(each().map(NewMessage::context_json).collect::<Vec<_>>())
        .bind(each().map(|message| message.due).collect::<Vec<_>>())
        .bind(each().map(NewMessage::give_up_at).collect::<Vec<_>>())
}

/// What a conditional launch has done, unless it was refused.
fn launch_of(row: &PgRow) -> sqlx::Result<LaunchResult> {
    if let Some(topic) = row.try_get("refused")? {
        return Err(Unhandled { topic, message: row.try_get("refused_type")?, at: None }.into());
    }
    Ok(LaunchResult {
        launched: row.try_get("launched")?,
        handlers: row.try_get("handlers")?,
        claimed: vec![],
    })
}

impl LaunchStorage for PostgresStore {
    async fn launch_in_own_transaction(&self, messages: &[NewMessage]) -> sqlx::Result<LaunchResult> {
        // Asked before a connection is held.
        self.may_write().await?;
        if is_bulky(messages) {
            return self.launch_in_parts(messages).await;
        }
        if messages.iter().any(NewMessage::is_found_by) {
            let mut tx = self.sessions.begin().await?;
            let launch = self.launch_found(&mut tx, messages).await?;
            tx.commit().await.inspect_err(retries::note)?;
            return Ok(launch);
        }
        self.sessions.run(async |session| self.launch(session, messages).await).await
    }

    async fn launch_and_claim(
        &self,
        claimer: Claimer<'_>,
        topology: i64,
        messages: &[NewMessage],
    ) -> sqlx::Result<LaunchResult> {
        let launch = async |session: &mut PgConnection| match messages {
            [one] if one.is_simple() => self.launch_one_claimed(session, claimer, topology, one).await,
            all => self.launch_deduplicated(session, all, claimer, topology).await,
        };
        if messages.iter().any(NewMessage::is_found_by) {
            let mut tx = self.sessions.begin().await?;
            let launched = launch(&mut tx).await?;
            self.record_found_by(&mut tx, messages).await?;
            tx.commit().await.inspect_err(retries::note)?;
            return Ok(launched);
        }
        self.sessions.run(launch).await
    }
}

impl PostgresStore {
    /// Publishes messages and starts a run for each listed handler. Fails with [`Unhandled`] if one of them
    /// requires a handler and there is none; then none of them is published.
    pub(crate) async fn launch(
        &self,
        executor: impl PgExecutor<'_>,
        messages: &[NewMessage],
    ) -> sqlx::Result<LaunchResult> {
        if messages.iter().any(NewMessage::is_conditional) || !self.may_write().await? {
            return self.launch_any(executor, messages).await;
        }
        let publish = match messages {
            [message] => message.insert_query(self.sql.message_insert_one.clone()),
            _ => insert_many_query(self.sql.message_insert_many.clone(), messages),
        };
        // The transaction may be one of the user, in which names may be taken.
        let rows = publish.persistent(self.sessions.supports_prepared()).fetch_all(executor).await?;
        let handlers = rows.iter().map(|row| row.try_get("handler")).collect::<Result<_, _>>()?;
        Ok(LaunchResult {
            launched: i64::try_from(messages.len()).unwrap_or(i64::MAX),
            handlers,
            claimed: vec![],
        })
    }

    /// As [`launch`](Self::launch), and records by what the messages are found.
    pub(crate) async fn launch_found(
        &self,
        connection: &mut PgConnection,
        messages: &[NewMessage],
    ) -> sqlx::Result<LaunchResult> {
        let launch = self.launch(&mut *connection, messages).await?;
        self.record_found_by(connection, messages).await?;
        Ok(launch)
    }

    pub(super) async fn launch_one_claimed(
        &self,
        executor: impl PgExecutor<'_>,
        claimer: Claimer<'_>,
        topology: i64,
        message: &NewMessage,
    ) -> sqlx::Result<LaunchResult> {
        assert!(message.is_simple(), "the statement knows nothing of the rest");
        let publish =
            message.insert_claiming_query(self.sql.message_insert_one_claiming.clone(), claimer, topology);
        let mut launch = LaunchResult { launched: 1, handlers: vec![], claimed: vec![] };
        for row in publish.persistent(self.sessions.supports_prepared()).fetch_all(executor).await? {
            if row.try_get("claimed")? {
                launch.claimed.push(row.try_get("id")?);
            } else {
                launch.handlers.push(row.try_get("handler")?);
            }
        }
        Ok(launch)
    }

    pub(super) async fn launch_deduplicated(
        &self,
        executor: impl PgExecutor<'_>,
        messages: &[impl Serialize + Sync],
        claimer: Claimer<'_>,
        topology: i64,
    ) -> sqlx::Result<LaunchResult> {
        let launch =
            sqlx::query(self.sql.message_insert_claiming.clone()).bind(Json(messages)).bind(claimer.worker);
        let launch = launch.bind(claimer.identifier).bind(topology);
        let row = launch.persistent(self.sessions.supports_prepared()).fetch_one(executor).await?;
        Ok(LaunchResult { claimed: row.try_get("claimed")?, ..launch_of(&row)? })
    }

    /// The same, in a transaction of any session, without claiming anything.
    pub(super) async fn launch_any(
        &self,
        executor: impl PgExecutor<'_>,
        messages: &[impl Serialize + Sync],
    ) -> sqlx::Result<LaunchResult> {
        let launch = sqlx::query(self.sql.message_insert_any.clone()).bind(Json(messages));
        // The transaction may be one of the user, in which names may be taken.
        let launch = launch.persistent(self.sessions.supports_prepared());
        launch_of(&launch.fetch_one(executor).await?)
    }
}
