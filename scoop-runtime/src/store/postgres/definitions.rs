//! Recorded definitions of sagas, and the living workers with their current ones.

use std::collections::{BTreeMap, BTreeSet};

use scoop_core::RecordedStep;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use super::decode::time;
use super::pool::READ_COMMITTED;
use super::query_ext::{ExecuteExt, FetchExt};
use crate::model::handlers::GoneHandler;
use crate::model::pause::PauseTarget;
#[cfg(test)]
use crate::model::program::Program;
use crate::model::stored_time::StoredTime;
use crate::store::queue_limit::limited_topics;
use crate::store::types::UNKNOWN_MAX;
use crate::store::{
    DefinitionStorage, HandOver, HandOverRequest, LimitedSaga, LivingWorker, NewDefinition, Registered,
    Topology,
};

/// How often a program tries to record its definitions. It tries again if other programs took the numbers at the same time.
const REGISTRATIONS_MAX: usize = 1_000;

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
    async fn publish_definitions(&self, definitions: &[NewDefinition]) -> sqlx::Result<Vec<(String, i32)>> {
        for _ in 0..REGISTRATIONS_MAX {
            let known = self.definition_ids(definitions).await?;
            let handlers: BTreeSet<_> = known.iter().map(|(handler, _)| &**handler).collect();
            let unknown = definitions.iter().filter(|it| !handlers.contains(&*it.handler));
            let unknown: Vec<_> = unknown.collect();
            if unknown.is_empty() {
                return Ok(known);
            }
            // One transaction for each, so that two programs never wait for each other.
            for NewDefinition { handler, fingerprint, steps } in unknown {
                let register = sqlx::query(self.sql.definition_register.clone()).bind(&**handler);
                register.bind(fingerprint).bind(Json(steps)).run(&self.sessions).await?;
            }
        }
        self.definition_ids(definitions).await
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

    async fn read_topology(&self, sagas: &[String]) -> sqlx::Result<Topology> {
        let rows = sqlx::query(self.sql.topology_read.clone()).bind(sagas).all(&self.sessions).await?;
        let (mut living, mut paused, mut topics) = (vec![], vec![], vec![]);
        let mut limited: BTreeMap<String, LimitedSaga> = BTreeMap::new();
        for row in &rows {
            match row.try_get("kind")? {
                "worker" => living.push(LivingWorker::from_row(row)?),
                "pause" => {
                    let target = PauseTarget::stored(row.try_get("of_name")?, row.try_get("name")?);
                    paused.extend(target.zip(Some(row.try_get("new_runs_only")?)));
                }
                "limit" => {
                    let (saga, key_from): (String, _) = (row.try_get("name")?, row.try_get("key_from")?);
                    let limit = limited.entry(saga);
                    let limit = limit.or_insert_with_key(|saga| LimitedSaga {
                        saga: saga.clone(),
                        handlers: vec![],
                        key_from,
                    });
                    limit.handlers.push(row.try_get("of_name")?);
                }
                _ => topics.push((row.try_get("name")?, row.try_get("of_name")?)),
            }
        }
        let (limited, limited_topics) = (limited.into_values().collect(), limited_topics(topics));
        Ok(Topology { living, paused, limited, limited_topics })
    }

    async fn mark_stuck(&self, refusal: HandOverRequest<'_>) -> sqlx::Result<HandOver> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        // So the next statement sees all living workers, and a worker that starts later sees its result.
        sqlx::query(self.sql.worker_lock_shared.clone()).bind(refusal.worker).execute(&mut *tx).await?;
        let stuck: Option<bool> = sqlx::query_scalar(self.sql.run_hand_over.clone())
            .bind(refusal.key.root)
            .bind(refusal.key.id)
            .bind(refusal.key.epoch)
            .bind(refusal.reason.replace('\0', ""))
            .bind(refusal.definition)
            .bind(refusal.or_stuck)
            .bind(refusal.only)
            .first_on(&mut tx)
            .await?;
        tx.commit().await?;
        Ok(match stuck {
            Some(true) => HandOver::Stuck,
            Some(false) => HandOver::HandedOver,
            None => HandOver::Void,
        })
    }
}

impl PostgresStore {
    pub(crate) async fn acknowledge(&self, worker: Uuid, topology: i64) -> sqlx::Result<()> {
        let acknowledge = sqlx::query(self.sql.worker_acknowledge.clone()).bind(worker).bind(topology);
        acknowledge.run(&self.sessions).await?;
        Ok(())
    }
}

impl PostgresStore {
    /// The numbers of those of these definitions that are recorded, by handler.
    async fn definition_ids(&self, of: &[NewDefinition]) -> sqlx::Result<Vec<(String, i32)>> {
        sqlx::query_as(self.sql.definition_ids.clone())
            .bind(of.iter().map(|it| &*it.handler).collect::<Vec<_>>())
            .bind(of.iter().map(|it| it.fingerprint).collect::<Vec<_>>())
            .all(&self.sessions)
            .await
    }

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
            .bind(&*registered.program.service)
            .bind(&*registered.program.build)
            .bind(registered.program.retained.as_deref())
            .one_on(&mut *connection)
            .await?;
        Ok(started_at.time())
    }

    /// Records that the handlers of a worker belong to its service, and retires those that the service does not have any more. In
    /// the transaction of its registration, before any run is locked, as by a retirement.
    pub(super) async fn own_handlers(
        &self,
        connection: &mut PgConnection,
        registered: Registered<'_>,
    ) -> sqlx::Result<Vec<GoneHandler>> {
        sqlx::query(self.sql.handler_own.clone())
            .bind(registered.topics)
            .bind(registered.handlers)
            .bind(&*registered.program.service)
            .bind(&*registered.program.build)
            .bind(registered.started_at)
            .execute(&mut *connection)
            .await?;
        self.retire_gone(connection, &[&registered.program.service], registered.worker).await
    }

    /// Retires the handlers of these services that no living process has any more. After changes of the living workers.
    pub(super) async fn retire_gone(
        &self,
        connection: &mut PgConnection,
        services: &[&str],
        worker: Uuid,
    ) -> sqlx::Result<Vec<GoneHandler>> {
        let rows = sqlx::query_as(self.sql.handler_retire_gone.clone()).bind(services).bind(worker);
        let rows: Vec<(String, String, String)> = rows.all_on(connection).await?;
        let gone = |(topic, handler, service)| GoneHandler { topic, handler, service };
        Ok(rows.into_iter().map(gone).collect())
    }

    /// Registers a single worker without handlers, with topology 0.
    #[cfg(test)]
    pub(super) async fn register_alone(&self, pool: &sqlx::PgPool, worker: uuid::Uuid, lock_key: i64) {
        let registered = Registered {
            worker,
            topics: &[],
            handlers: &[],
            definitions: &[],
            started_at: None,
            program: &Program::default(),
        };
        let mut connection = pool.acquire().await.unwrap();
        self.register_on(&mut connection, lock_key, registered).await.unwrap();
        sqlx::query("UPDATE scoop.worker SET topology = 0 WHERE id = $1")
            .bind(worker)
            .execute(&mut *connection)
            .await
            .unwrap();
    }

    /// Begins a change of the living workers: claims with the former topology take nothing. It comes first in its
    /// transaction, and lets one such transaction run at a time. It waits for refusals under way, so that
    /// [`PostgresStore::reconsider`] sees their result.
    pub(super) async fn lock_topology(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        sqlx::query(self.sql.topology_lock.clone()).execute(&mut *connection).await?;
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
        retry.execute(&mut *connection).await?;
        self.mark_unawaited(connection, handlers).await
    }

    /// Marks runs of these handlers as stuck that wait for a signal which no living definition of them awaits any more.
    pub(super) async fn mark_unawaited(
        &self,
        connection: &mut PgConnection,
        handlers: &[String],
    ) -> sqlx::Result<()> {
        sqlx::query(self.sql.run_mark_unawaited.clone()).bind(handlers).execute(connection).await?;
        Ok(())
    }
}
