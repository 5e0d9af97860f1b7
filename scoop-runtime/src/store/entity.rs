//! Entities, and the decisions about them that are settled together.

use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

use super::{SettleResult, Settlement};

/// Which entity: its name and its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntityId {
    pub(crate) name: &'static str,
    pub(crate) key: String,
}

/// The state of an entity.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoredEntity {
    /// The number of its events.
    pub(crate) version: i64,
    /// None without an event.
    pub(crate) state: Option<Value>,
}

/// An entity at the beginning of decisions about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EntityAtHand {
    /// It is locked, and this is its state.
    Locked(StoredEntity),
    /// It is locked, and its state is none that programs can read.
    Unreadable(String),
    /// Another transaction has locked it.
    Busy,
}

/// Decisions to be settled together.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    pub(crate) settlements: Vec<Settlement>,
    /// The new states of the entities that have changed.
    pub(crate) changes: Vec<(EntityId, StoredEntity)>,
    pub(crate) events: Vec<NewEntityEvent>,
}

/// An event of an entity to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewEntityEvent {
    pub(crate) entity: EntityId,
    /// The version of the entity after it.
    pub(crate) version: i64,
    /// The message that it is.
    pub(crate) message: Uuid,
    /// The run of the command.
    pub(crate) run: Uuid,
}

/// What became of decisions.
#[derive(Debug)]
pub(crate) enum DecisionsSettled {
    /// All of them are written.
    All(BTreeMap<(Uuid, i64), SettleResult>),
    /// None is, since the settlements of these runs do not apply: their claims do not hold, or they have to give up.
    Void(Vec<(Uuid, i64)>),
}
