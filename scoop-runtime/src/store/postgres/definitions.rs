//! Recorded definitions of sagas, and the living workers with their current ones.

use scoop_core::RecordedStep;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use time::OffsetDateTime;

use super::PostgresStore;
use super::decode::time;
use super::pool::READ_COMMITTED;
use super::query_ext::{ExecuteExt, FetchExt};
use crate::store::queue::limited_topics;
use crate::store::types::UNKNOWN_MAX;
use crate::store::{
    DefinitionStorage, LimitedSaga, LivingWorker, PauseTarget, PublishedDefinition, Refusing, Registered,
    SetAside, Topology,
};
use crate::util::stored_time::StoredTime;

impl LivingWorker {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            topology: row.try_get("topology")?,
            acknowledged: row.try_get("acknowledged")?,
            started_at: time(row, "started_at")?,
            topics: row.try_get("topics")?,
            handlers: row.try_get("handlers")?,
            definitions: row.try_get("definitions")?,
        })
    }
}

impl DefinitionStorage for PostgresStore {
    async fn publish_definitions(
        &self,
        definitions: &[PublishedDefinition],
    ) -> sqlx::Result<Vec<(String, i32)>> {
        sqlx::query(self.sql.definition_register.clone())
            .bind(Json(definitions))
            .done(&self.sessions)
            .await?;
        // A statement of its own: it sees what another program has recorded meanwhile.
        sqlx::query_as(self.sql.definition_ids.clone())
            .bind(definitions.iter().map(|it| &*it.handler).collect::<Vec<_>>())
            .bind(definitions.iter().map(|it| it.fingerprint).collect::<Vec<_>>())
            .all(&self.sessions)
            .await
    }

    async fn definition_steps(
        &self,
        definition: i32,
        handler: &str,
    ) -> sqlx::Result<Option<Vec<RecordedStep>>> {
        let steps = sqlx::query_scalar(self.sql.definition_steps.clone()).bind(definition).bind(handler);
        let steps: Option<Json<Vec<RecordedStep>>> = steps.all(&self.sessions).await?.pop();
        Ok(steps.map(|Json(steps)| steps))
    }

    async fn enlist(&self, registered: Registered<'_>, changed: &[String]) -> sqlx::Result<()> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_topology(&mut tx).await?;
        sqlx::query(self.sql.worker_change_definitions.clone())
            .bind(registered.worker)
            .bind(registered.topics)
            .bind(registered.handlers)
            .bind(registered.definitions)
            .execute(&mut *tx)
            .await?;
        self.reconsider(&mut tx, changed).await?;
        self.notification(registered.worker).execute(&mut *tx).await?;
        tx.commit().await
    }

    async fn read_topology(&self) -> sqlx::Result<Topology> {
        let rows = sqlx::query(self.sql.topology_read.clone()).all(&self.sessions).await?;
        let (mut paused, mut limits, mut topics) = (None, None, None);
        if let Some(row) = rows.first() {
            paused = row.try_get::<Option<Json<Vec<(String, String)>>>, _>("paused")?;
            limits = row.try_get::<Option<Json<Vec<(String, Vec<String>, Option<String>)>>>, _>("limits")?;
            topics = row.try_get::<Option<Json<Vec<(String, String)>>>, _>("limited_topics")?;
        }
        let limits = limits.map(|Json(limits)| limits).unwrap_or_default().into_iter();
        let limited = limits.map(|(saga, handlers, key_from)| LimitedSaga { saga, handlers, key_from });
        let limited = limited.collect();
        let limited_topics = limited_topics(topics.map(|Json(topics)| topics).unwrap_or_default());
        let paused = paused.map(|Json(paused)| paused).unwrap_or_default();
        let paused = paused.into_iter().filter_map(|(kind, name)| PauseTarget::stored(&kind, name));
        let living = rows.iter().map(LivingWorker::from_row).collect::<sqlx::Result<_>>()?;
        Ok(Topology { living, paused: paused.collect(), limited, limited_topics })
    }

    async fn mark_stuck(&self, refusal: Refusing<'_>) -> sqlx::Result<SetAside> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        // So the next statement sees all living workers, and a worker that starts later sees its result.
        sqlx::query(self.sql.worker_share.clone()).bind(refusal.worker).execute(&mut *tx).await?;
        let stuck: Option<bool> = sqlx::query_scalar(self.sql.run_hand_over.clone())
            .bind(refusal.key.root)
            .bind(refusal.key.id)
            .bind(refusal.key.epoch)
            .bind(refusal.reason.replace('\0', ""))
            .bind(refusal.definition)
            .bind(refusal.or_stuck)
            .first_on(&mut tx)
            .await?;
        tx.commit().await?;
        Ok(match stuck {
            Some(true) => SetAside::Stuck,
            Some(false) => SetAside::HandedOver,
            None => SetAside::Void,
        })
    }
}

impl PostgresStore {
    /// Registers a worker, in a transaction of the caller.
    pub(super) async fn register_on(
        &self,
        connection: &mut PgConnection,
        lock_key: i64,
        registered: Registered<'_>,
    ) -> sqlx::Result<OffsetDateTime> {
        let started_at: StoredTime = sqlx::query_scalar(self.sql.worker_register.clone())
            .bind(registered.worker)
            .bind(lock_key)
            .bind(registered.handlers)
            .bind(registered.definitions)
            .bind(registered.started_at)
            .bind(registered.topics)
            .one_on(connection)
            .await?;
        Ok(started_at.time())
    }

    /// Registers a single worker without handlers, with topology 0.
    #[cfg(test)]
    pub(super) async fn register_alone(&self, pool: &sqlx::PgPool, worker: uuid::Uuid, lock_key: i64) {
        let registered =
            Registered { worker, topics: &[], handlers: &[], definitions: &[], started_at: None };
        let mut connection = pool.acquire().await.unwrap();
        self.register_on(&mut connection, lock_key, registered).await.unwrap();
        sqlx::query("UPDATE scoop.worker SET topology = 0 WHERE id = $1")
            .bind(worker)
            .execute(&mut *connection)
            .await
            .unwrap();
    }

    /// Begins a change of the living workers: claims with the former topology take nothing. It is the first statement
    /// of its transaction, so that two such transactions lock the rows of workers in one order. It waits for refusals
    /// under way, so that [`PostgresStore::reconsider`] sees their result.
    pub(super) async fn lock_topology(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        sqlx::query(self.sql.topology_change.clone()).execute(connection).await?;
        Ok(())
    }

    /// Gives the runs of these handlers that were reserved or stuck another chance: a worker of them has started,
    /// ended or changed its definitions.
    pub(super) async fn reconsider(
        &self,
        connection: &mut PgConnection,
        handlers: &[String],
    ) -> sqlx::Result<()> {
        sqlx::query(self.sql.run_unreserve.clone()).bind(handlers).execute(&mut *connection).await?;
        let retry = sqlx::query(self.sql.run_retry_stuck.clone()).bind(handlers).bind(UNKNOWN_MAX);
        retry.execute(connection).await?;
        Ok(())
    }
}
