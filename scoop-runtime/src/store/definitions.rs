//! Recorded definitions of sagas, and the living workers with their current ones.

use scoop_core::{Definition, RecordedStep};
use serde::Serialize;
use sqlx::postgres::{PgListener, PgRow};
use sqlx::types::Json;
use sqlx::{Acquire, PgConnection, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::alone::{Alone, Done};
use super::engine::READ_COMMITTED;
use super::free::UNKNOWN_MAX;
use super::rows::{StoredTime, time};
use super::{Key, Tables};

/// The runs that a worker may claim: those of some handlers, on some topic each, that are reserved for one definition
/// of the handler, or for none. Lists with an element for each such queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lanes {
    pub(crate) topics: Vec<String>,
    pub(crate) handlers: Vec<String>,
    /// The definition that the runs are reserved for; 0 for those that continue under the current definition.
    pub(crate) reserved_for: Vec<i32>,
    /// The definition at hand.
    pub(crate) definitions: Vec<i32>,
    /// The last step of the definition at hand.
    pub(crate) last_steps: Vec<String>,
    /// The value of `worker.topology` that the lists follow from. With another value nothing is claimed.
    pub(crate) topology: i64,
}

impl Lanes {
    /// Adds a queue.
    pub(crate) fn push(&mut self, topic: &str, definition: (&Definition, i32), reserved_for: i32) {
        let (saga, id) = definition;
        self.topics.push(topic.to_owned());
        self.handlers.push(saga.saga.to_string());
        self.reserved_for.push(reserved_for);
        self.definitions.push(id);
        self.last_steps.push(saga.last_step().unwrap_or_default().to_owned());
    }

    /// The queues of runs that are not reserved, of these topics and handlers.
    #[cfg(test)]
    pub(crate) fn unreserved(topics: &[String], handlers: &[String]) -> Self {
        let count = topics.len();
        Self {
            topics: topics.to_vec(),
            handlers: handlers.to_vec(),
            reserved_for: vec![0; count],
            definitions: vec![0; count],
            last_steps: vec![String::new(); count],
            topology: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.topics.len()
    }

    /// The topics, handlers and reservations.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &str, i32)> {
        let pairs = self.topics.iter().zip(&self.handlers);
        pairs.zip(&self.reserved_for).map(|((topic, handler), lane)| (&**topic, &**handler, *lane))
    }

    /// The queues that `is_kept` accepts, by topic, handler and reservation.
    pub(crate) fn only(&self, is_kept: impl Fn((&str, &str, i32)) -> bool) -> Self {
        let mut only = Self { topology: self.topology, ..Self::default() };
        for (at, lane) in self.each().enumerate().filter(|(_, lane)| is_kept(*lane)) {
            only.topics.push(lane.0.to_owned());
            only.handlers.push(lane.1.to_owned());
            only.reserved_for.push(lane.2);
            only.definitions.push(self.definitions[at]);
            only.last_steps.push(self.last_steps[at].clone());
        }
        only
    }
}

/// A run that a program cannot continue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusing<'a> {
    pub(crate) key: Key,
    pub(crate) reason: &'a str,
    pub(crate) worker: Uuid,
    /// The definition that refuses it.
    pub(crate) definition: i32,
    /// Whether it is stuck if no living worker has another definition; otherwise the claim of it stays.
    pub(crate) or_stuck: bool,
}

/// The result for a run that a program cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetAside {
    /// No living worker has a definition that has not refused it.
    Stuck,
    /// It is ready for a worker with another definition.
    HandedOver,
    /// It was not held under the key any more, or the claim of it stays.
    Void,
}

/// A definition, as `definition_publish.sql` takes it.
#[derive(Debug, Serialize)]
pub(crate) struct PublishedDefinition {
    pub(crate) handler: String,
    pub(crate) fingerprint: Uuid,
    pub(crate) steps: Vec<RecordedStep>,
}

/// A living worker. The lists have an element for each of its sagas.
#[derive(Clone, Debug)]
pub(crate) struct LivingWorker {
    pub(crate) id: Uuid,
    pub(crate) topology: i64,
    pub(crate) started_at: OffsetDateTime,
    pub(crate) topics: Vec<String>,
    pub(crate) handlers: Vec<String>,
    /// Of each handler the definition that the worker has.
    pub(crate) definitions: Vec<i32>,
}

/// A worker that starts, or has a new session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered<'a> {
    pub(crate) worker: Uuid,
    pub(crate) topics: &'a [String],
    pub(crate) handlers: &'a [String],
    pub(crate) definitions: &'a [i32],
    /// When the worker started, if this is not its first session.
    pub(crate) started_at: Option<OffsetDateTime>,
}

impl LivingWorker {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            topology: row.try_get("topology")?,
            started_at: time(row, "started_at")?,
            topics: row.try_get("topics")?,
            handlers: row.try_get("handlers")?,
            definitions: row.try_get("definitions")?,
        })
    }
}

impl Tables {
    /// Records definitions. Returns the number of each.
    pub(crate) async fn publish_definitions(
        &self,
        definitions: &[PublishedDefinition],
    ) -> sqlx::Result<Vec<(String, i32)>> {
        sqlx::query(self.sql.definition_publish.clone()).bind(Json(definitions)).done(&self.sessions).await?;
        // A statement of its own: it sees what another program has recorded meanwhile.
        sqlx::query_as(self.sql.definition_ids.clone())
            .bind(definitions.iter().map(|it| &*it.handler).collect::<Vec<_>>())
            .bind(definitions.iter().map(|it| it.fingerprint).collect::<Vec<_>>())
            .all(&self.sessions)
            .await
    }

    /// The steps of a recorded definition of this handler.
    pub(crate) async fn definition_steps(
        &self,
        definition: i32,
        handler: &str,
    ) -> sqlx::Result<Option<Vec<RecordedStep>>> {
        let steps = sqlx::query_scalar(self.sql.definition_steps.clone()).bind(definition).bind(handler);
        let steps: Option<Json<Vec<RecordedStep>>> = steps.all(&self.sessions).await?.pop();
        Ok(steps.map(|Json(steps)| steps))
    }

    /// The living workers.
    pub(crate) async fn living_workers(&self) -> sqlx::Result<Vec<LivingWorker>> {
        let rows = sqlx::query(self.sql.topology_read.clone()).all(&self.sessions).await?;
        rows.iter().map(LivingWorker::from_row).collect()
    }

    /// Registers a worker whose session holds the advisory lock, and notifies the other workers. Returns when the
    /// worker started.
    pub(crate) async fn register(
        &self,
        listener: &mut PgListener,
        lock_key: i64,
        registered: Registered<'_>,
    ) -> sqlx::Result<OffsetDateTime> {
        let mut tx = listener.begin().await?;
        self.lock_topology(&mut tx).await?;
        let started_at = self.register_on(&mut tx, lock_key, registered).await?;
        self.reconsider(&mut tx, registered.handlers).await?;
        self.notification(registered.worker).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(started_at)
    }

    /// Replaces the sagas of a registered worker, as if it had started with the changed ones. Notifies the other
    /// workers.
    pub(crate) async fn enlist(&self, registered: Registered<'_>, changed: &[String]) -> sqlx::Result<()> {
        let mut tx = self.sessions.begin_with(READ_COMMITTED).await?;
        self.lock_topology(&mut tx).await?;
        sqlx::query(self.sql.worker_enlist.clone())
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
            .fetch_one(connection)
            .await?;
        Ok(started_at.time())
    }

    /// Registers a single worker without handlers, with topology 0.
    #[cfg(test)]
    pub(super) async fn register_alone(&self, pool: &sqlx::PgPool, worker: Uuid, lock_key: i64) {
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
    /// under way, so that [`Tables::reconsider`] sees their result.
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
