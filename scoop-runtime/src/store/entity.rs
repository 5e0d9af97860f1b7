//! Entities, and the decisions about them that are settled together.

use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

use super::{SettleResult, Settlement};

/// Which entity: its name and its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntityId {
    /// The name.
    pub name: &'static str,
    /// The key.
    pub key: String,
}

/// The state of an entity as it is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredEntity {
    /// The number of its events.
    pub version: i64,
    /// None without an event.
    pub state: Option<Value>,
}

/// What to do about an entity whose version is none that its events can lead to.
pub(crate) const RENUMBER: &str = "set it in `scoop.entity` to the version of its last row in `scoop.entity_event`, or to 0 \
    if it has none; then restore its state with `operate().entities().rebuild`, unless that is in a table of yours";

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
    pub(crate) changes: Vec<(EntityId, StoredEntity)>,
    pub(crate) events: Vec<NewEntityEvent>,
}

/// An event of an entity to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntityEvent {
    pub(crate) entity: EntityId,
    pub(crate) version: i64,
    pub(crate) message: Uuid,
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
