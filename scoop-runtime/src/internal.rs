//! What the crate for operators builds on: the connections, the schema and the clock of a program on PostgreSQL, and how rows become
//! values. It is not part of the public API.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, SqlStr};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use crate::api::operations::*;
pub use crate::engine::IDENTIFIER_PREFIX;
pub use crate::model::run::QUEUED_MIN;
pub use crate::repair::no_program;
use crate::store::{
    DueStorage as _, FetchExt as _, NewMessage, PostgresStore, RequestStorage as _, Store,
    SubscriptionStorage as _,
};
pub use crate::store::{FIRST_MAX, UNKNOWN_MAX};
pub use crate::store::{
    HandlerList, concurrency, failed_attempts, failure_if_readable, lineage, no_failure, pauses, phase,
    priority, rate, serial, stored_time, time, time_if_any, without_comments,
};
pub use crate::util::format::{ahead, strategy, system_time, utc};
pub use crate::util::read_permits::is_out_of_permits;
use crate::util::retries::Retries;
pub use crate::util::retries::{Attempt, FOREVER, GivenUp};
pub use crate::util::stored_time::StoredTime;
pub use crate::util::when::Now;
use crate::{IdObject, QueueLength, RegisteredHandler, Scoop};

/// Helpers for the JSON of what operators read.
pub mod json {
    pub use crate::util::json::{lineage, millis, rollback_failure, time};
}

/// The ids of the message and of the hierarchy that are launched on this topic with this unique key.
pub fn unique_ids(topic: &str, key: &str) -> (Uuid, Uuid) {
    let ids = NewMessage::unique_ids(topic, key);
    (ids.id, ids.root)
}

/// The tables of a program, for reading. They do not keep the program running.
pub struct Tables {
    store: Arc<PostgresStore>,
    retry_for: Duration,
    /// Cancelled by a shutdown.
    pub stopped: CancellationToken,
}

impl Tables {
    /// Of a program that runs on PostgreSQL.
    pub fn of(scoop: &Scoop) -> Option<Self> {
        match scoop.store() {
            Store::Postgres(store) => Some(Self {
                store: store.clone(),
                retry_for: scoop.retry_for(),
                stopped: scoop.stopped().clone(),
            }),
            #[cfg(feature = "in-memory")]
            Store::Memory(_) => None,
        }
    }

    /// All rows of a query.
    pub async fn all(&self, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<Vec<PgRow>> {
        query.all(self.store.sessions()).await
    }

    /// The first row of a query, if any.
    pub async fn first(&self, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<Option<PgRow>> {
        query.first(self.store.sessions()).await
    }

    /// This text of a statement with the schema in place of `scoop`.
    pub fn qualify(&self, text: &str) -> SqlStr {
        self.store.qualify(text)
    }

    /// Retries a short look.
    pub async fn retrying<T: Send, F>(&self, read: impl FnMut(Attempt) -> F) -> Result<T, GivenUp>
    where
        F: Future<Output = sqlx::Result<T>> + Send,
    {
        Retries::new(self.retry_for).run(read).await
    }

    /// Retries a read of rows that may be many. Such reads take turns.
    pub async fn read_retrying<T: Send, F>(&self, read: impl FnMut(Attempt) -> F) -> Result<T, GivenUp>
    where
        F: Future<Output = sqlx::Result<T>> + Send,
    {
        Retries::new(self.retry_for).reading(Some(self.store.sessions().read_permits())).run(read).await
    }

    /// The time of the server.
    pub async fn now(&self) -> sqlx::Result<Now> {
        self.store.now().await
    }

    /// What an id names.
    pub async fn named(&self, id: Uuid) -> sqlx::Result<Option<IdObject>> {
        self.store.named(id).await
    }

    /// The registered handlers.
    pub async fn listed_handlers(&self, part: &HandlerList) -> sqlx::Result<Vec<RegisteredHandler>> {
        self.store.listed_handlers(part).await
    }

    /// The queues with a limit: of these sagas, or all.
    pub async fn queue_lengths(&self, of: Option<&[String]>) -> sqlx::Result<Vec<QueueLength>> {
        self.store.queue_lengths(of).await
    }

    /// Reads the recorded and declared launches of all sagas.
    pub fn launches(&self) -> Query<'static, Postgres, PgArguments> {
        self.store.launches_query()
    }

    /// Reads the keys of entities of a name, after this one.
    pub fn entity_keys(&self, name: &str, after: &str, limit: u32) -> Query<'static, Postgres, PgArguments> {
        self.store.keys_query(name, after, limit)
    }

    /// Reads an entity.
    pub fn entity(&self, name: &str, key: &str) -> Query<'static, Postgres, PgArguments> {
        self.store.entity_query(name, key)
    }

    /// Reads events of an entity, after this version.
    pub fn entity_events(
        &self,
        name: &str,
        key: &str,
        after: i64,
        limit: u32,
    ) -> Query<'static, Postgres, PgArguments> {
        self.store.events_query(name, key, after, limit)
    }
}
