//! The events of an entity, page by page.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Entity, EntityKey as _, Message};
use serde_json::Value;
use uuid::Uuid;

use super::command::possible_key;
use super::scoop::Scoop;
use crate::error::ErrorKind;
use crate::model::entity::StoredEntityEvent;
use crate::model::format::system_time;
use crate::store::EntityId;
use crate::util::retries::GivenUp;
use crate::{RunId, RuntimeError};

/// The default size of a page.
const LIMIT_DEFAULT: u32 = 100;

/// An event of an entity.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EntityEvent {
    /// The version of the entity after it: 1 for the first event.
    pub version: u64,
    /// The time at which it was recorded, by the clock of the server.
    pub at: SystemTime,
    /// The topic of the event, which is a message.
    pub topic: String,
    /// The payload of the message.
    pub payload: Value,
    /// The id of the message.
    pub message_id: Uuid,
    /// The run of the command.
    pub command: RunId,
    id: EntityId,
}

impl EntityEvent {
    /// The event as a message of this type; `None` if it is of another topic.
    ///
    /// # Errors
    ///
    /// If the payload does not fit the type.
    pub fn message<M: Message>(&self) -> Result<Option<M>, RuntimeError> {
        if self.topic != M::TOPIC {
            return Ok(None);
        }
        let Self { version, topic, .. } = self;
        M::read_stored(&self.payload).map(Some).map_err(|error| {
            let why =
                format!("its event of version {version} on topic `{topic}` does not fit its type: {error}");
            RuntimeError::from(ErrorKind::Entity { entity: self.id.name, key: self.id.key.clone(), why })
        })
    }

    pub(super) fn new(id: &EntityId, stored: StoredEntityEvent) -> Result<Self, RuntimeError> {
        let StoredEntityEvent { version, at, message, run, event } = stored;
        let Some((topic, payload)) = event else {
            let why = format!("the message {message} of its event of version {version} is missing");
            return Err(RuntimeError::from(ErrorKind::Entity { entity: id.name, key: id.key.clone(), why }));
        };
        Ok(Self {
            version: u64::try_from(version).unwrap_or_default(),
            at: system_time(at),
            topic,
            payload,
            message_id: message,
            command: run.into(),
            id: id.clone(),
        })
    }
}

/// A page of the events of an entity, oldest first. Await it.
#[must_use = "nothing is read before this is awaited"]
pub struct EntityEvents<E> {
    scoop: Scoop,
    id: EntityId,
    after: u64,
    limit: u32,
    entity: PhantomData<fn() -> E>,
}

impl<E: Entity> EntityEvents<E> {
    /// Begins after this version: that of the last event of the page before.
    pub fn after(mut self, version: u64) -> Self {
        self.after = version;
        self
    }

    /// Sets the maximum number of events; 100 by default. Their payloads are in memory together.
    pub fn limit(mut self, events: u32) -> Self {
        self.limit = events;
        self
    }
}

impl<E> IntoFuture for EntityEvents<E> {
    type Output = Result<Vec<EntityEvent>, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { scoop, id, after, limit, .. } = self;
        async move {
            let id = possible_key(id)?;
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            let events = scoop.read_retrying(|_| scoop.store().entity_events(&id, after, limit)).await;
            let events = events.map_err(GivenUp::error("the events of an entity were looked up"))?;
            events.into_iter().map(|event| EntityEvent::new(&id, event)).collect()
        }
        .boxed()
    }
}

/// `scoop_operate::Entities::events`.
pub fn entity_events<E: Entity>(scoop: &Scoop, key: E::Key) -> EntityEvents<E> {
    let id = EntityId { name: E::NAME, key: key.to_key() };
    EntityEvents { scoop: scoop.clone(), id, after: 0, limit: LIMIT_DEFAULT, entity: PhantomData }
}
