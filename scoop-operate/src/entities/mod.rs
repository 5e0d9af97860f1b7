//! Entities: without the types of the program, and the rebuild of their states with these.

mod fold;
mod rebuild;

use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::Entity;
use scoop_runtime::internal::{self, FetchExt as _, json, system_time, time};
use scoop_runtime::{EntityEvents, RunId};
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

pub use self::rebuild::{EntityNotRebuilt, RebuildEntities, RebuiltEntities};
use crate::contents::{Content, Redaction, content};
use crate::database::Database;
use crate::statements::ENTITY_NAMES;
use crate::{Operate, OperateError};

/// The maximum number of events of an entity on a page.
const EVENTS_MAX: u32 = 50;

/// The number of keys in a list of entities.
const KEYS_MAX: u32 = 50;

/// The maximum number of names of entities.
const NAMES_MAX: u32 = 1_000;

/// The entities.
#[derive(Clone)]
pub struct Entities {
    pub(crate) operate: Operate,
}

impl Entities {
    /// Rebuilds the states of the entities of a type from their events, after an application has changed. Await it; by
    /// default it rebuilds all of them, in the order of their keys.
    ///
    /// Commands may be decided meanwhile. An entity is locked only while its newest events are applied, 100 at most. A
    /// program of an older version would apply further events to a rebuilt state in its own way, so end these programs
    /// first. The cost depends on the number of events of the entities.
    ///
    /// An entity that cannot be rebuilt keeps its state, and all others are rebuilt.
    ///
    /// # Errors
    ///
    /// [`OperateError::not_rebuilt`] has the entities of which an event has no application any more, does not fit its type or is missing,
    /// whose application panics, or whose state cannot be stored. If the key is not possible; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a part of the entities is rebuilt, each as a whole. The call can be repeated.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example<Stock: scoop_core::Entity<Key = u64>>(
    /// #     scoop: scoop_runtime::Scoop,
    /// # ) -> Result<(), scoop_operate::OperateError> {
    /// let mut rebuilt = scoop.operate().entities().rebuild::<Stock>().limit(1_000).await?;
    /// while let Some(last_key) = rebuilt.last_key {
    ///     println!("rebuilt up to {last_key}");
    ///     rebuilt = scoop.operate().entities().rebuild::<Stock>().after(last_key).limit(1_000).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn rebuild<E: Entity>(&self) -> RebuildEntities<E> {
        RebuildEntities::new(self.operate.clone())
    }

    /// The events of the entity with this key, oldest first: up to 100, or a [`limit`](EntityEvents::limit), after a
    /// [version](EntityEvents::after). A page costs the same after any number of events.
    ///
    /// # Errors
    ///
    /// If the key has no bytes, more than 255, or a NUL character; if the message of an event is missing; or if the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_core::{Entity, Message};
    /// # async fn example<Stock: Entity<Key = u64>, StockReserved: Message + std::fmt::Debug>(
    /// #     scoop: scoop_runtime::Scoop,
    /// # ) -> Result<(), scoop_operate::OperateError> {
    /// let mut version = 0;
    /// loop {
    ///     let page = scoop.operate().entities().events::<Stock>(7).after(version).limit(50).await?;
    ///     for event in &page {
    ///         println!("version {}: {} at {:?}", event.version, event.topic, event.at);
    ///         if let Some(reserved) = event.message::<StockReserved>()? {
    ///             println!("{reserved:?}");
    ///         }
    ///     }
    ///     match page.last() {
    ///         Some(last) => version = last.version,
    ///         None => break,
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn events<E: Entity>(&self, key: E::Key) -> EntityEvents<E> {
        internal::entity_events(&self.operate.scoop, key)
    }

    /// The names of all entities, in their order; up to 1,000.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for name in scoop.operate().entities().names().await? {
    ///     println!("{name}: {:?}", scoop.operate().entities().keys(&name, "").await?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn names(&self) -> BoxFuture<'static, Result<Vec<String>, OperateError>> {
        let database = self.operate.database();
        async move {
            database.read_retrying("entities were listed", |_| database.entity_names(NAMES_MAX)).await
        }
        .boxed()
    }

    /// The keys of the entities of this name that have events, in their order: up to 50, after this one.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let mut after = String::new();
    /// loop {
    ///     let keys = scoop.operate().entities().keys("stock", &after).await?;
    ///     let Some(last) = keys.last() else { return Ok(()) };
    ///     println!("{keys:?}");
    ///     after = last.clone();
    /// }
    /// # }
    /// ```
    pub fn keys(&self, name: &str, after: &str) -> BoxFuture<'static, Result<Vec<String>, OperateError>> {
        let (database, name, after) = (self.operate.database(), name.to_owned(), after.to_owned());
        async move {
            database
                .read_retrying("entities were listed", |_| {
                    database.named_entity_keys(&name, &after, KEYS_MAX)
                })
                .await
        }
        .boxed()
    }

    /// The version and the state of an entity, and a page of its events after this version: up to 50, oldest first. `None`
    /// if there is no such entity. Redacted as [`Runs::contents`](crate::Runs::contents).
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// if let Some(stock) = scoop.operate().entities().contents("stock", "7", 0).await? {
    ///     println!("version {} with {} events", stock.version, stock.events.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn contents(
        &self,
        name: &str,
        key: &str,
        after: u64,
    ) -> BoxFuture<'static, Result<Option<EntityContents>, OperateError>> {
        let (database, name, key) = (self.operate.database(), name.to_owned(), key.to_owned());
        async move {
            let doing = "an entity was looked up";
            let redaction = database.redaction().await?;
            let read = |_| database.entity_row(&name, &key, &redaction);
            let entity = database.read_retrying(doing, read).await?;
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            let read = |_| database.entity_event_rows(&name, &key, after, &redaction);
            let mut events = database.read_retrying(doing, read).await?;
            if entity.is_none() && events.is_empty() {
                return Ok(None);
            }
            let (version, state) = entity.unwrap_or_default();
            let is_more = events.len() > EVENTS_MAX as usize;
            events.truncate(EVENTS_MAX as usize);
            Ok(Some(EntityContents {
                version: u64::try_from(version).unwrap_or(0),
                state,
                next: events.last().filter(|_| is_more).map(|last| last.version),
                events,
            }))
        }
        .boxed()
    }
}

impl Database {
    async fn entity_names(&self, limit: u32) -> sqlx::Result<Vec<String>> {
        let rows = sqlx::query(self.text(ENTITY_NAMES)).bind(i64::from(limit)).all(self.sessions()).await?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }

    pub(super) async fn named_entity_keys(
        &self,
        name: &str,
        after: &str,
        limit: u32,
    ) -> sqlx::Result<Vec<String>> {
        let rows = self.keys_query(name, after, limit).all(self.sessions()).await?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }

    /// The version and the state of an entity.
    async fn entity_row(
        &self,
        name: &str,
        key: &str,
        redaction: &Redaction,
    ) -> sqlx::Result<Option<(i64, Option<Content>)>> {
        let row = self.entity_query(name, key).first(self.sessions()).await?;
        let state = |row: &PgRow| content(row, "state").map(|state| redaction.shown(state));
        row.map(|row| Ok((row.try_get("version")?, state(&row)))).transpose()
    }

    async fn entity_event_rows(
        &self,
        name: &str,
        key: &str,
        after: i64,
        redaction: &Redaction,
    ) -> sqlx::Result<Vec<EntityEventContents>> {
        let rows = self.events_query(name, key, after, EVENTS_MAX + 1).all(self.sessions()).await?;
        let read = |row: &PgRow| -> sqlx::Result<_> {
            Ok(EntityEventContents {
                version: u64::try_from(row.try_get::<i64, _>("version")?).unwrap_or(0),
                at: system_time(time(row, "at")?),
                topic: row.try_get("topic")?,
                payload: content(row, "payload").map(|payload| redaction.shown(payload)),
                message_id: row.try_get("message_id")?,
                command: row.try_get("run")?,
            })
        };
        rows.iter().map(read).collect()
    }
}

/// An entity as operators see it: the result of [`Entities::contents`](crate::Entities::contents).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EntityContents {
    /// The number of its events.
    pub version: u64,
    /// The state after these. `None` if it has none, or if it is in a table of the program.
    pub state: Option<Content>,
    /// A page of its events, oldest first.
    pub events: Vec<EntityEventContents>,
    /// The version after which the next page begins; `None` at the end.
    pub next: Option<u64>,
}

/// An event of an entity, as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EntityEventContents {
    /// The version of the entity after it.
    pub version: u64,
    /// The time at which it was recorded, by the clock of the database.
    #[serde(serialize_with = "json::time")]
    pub at: SystemTime,
    /// Its topic; `None` if its message is missing.
    pub topic: Option<String>,
    /// The payload of its message.
    pub payload: Option<Content>,
    /// Its message.
    #[serde(rename = "message")]
    pub message_id: Uuid,
    /// The run of the command.
    pub command: RunId,
}
