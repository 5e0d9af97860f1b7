//! Entities, and the decisions about them that are settled together.

use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

use super::{SettleResult, Settlement};
use crate::model::entity::Unfolded;

/// Which entity: its name and its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntityId {
    pub(crate) name: &'static str,
    pub(crate) key: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoredEntity {
    /// The number of its events.
    pub(crate) version: i64,
    /// None without an event.
    pub(crate) state: Option<Value>,
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

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewEntityEvent {
    pub(crate) entity: EntityId,
    pub(crate) version: i64,
    pub(crate) message: Uuid,
    pub(crate) run: Uuid,
}

/// The version and the state after events, or the reason for which they cannot be applied.
pub(crate) type FoldedState = Result<(i64, Value), Unfolded>;

/// What became of the state of an entity that was to be rebuilt.
#[derive(Debug)]
pub(crate) enum Refolded {
    /// It is the state after all events. So many were applied while the entity was locked.
    Written { changed: bool, events: u64 },
    /// It is unchanged: too many events were left to apply.
    Behind,
    /// It is unchanged: an event could not be applied.
    Failed(Unfolded),
}

impl Refolded {
    /// Compares the locked entity with the state after its events: None if that is to be written.
    pub(crate) fn new(stored: &StoredEntity, folded: &FoldedState, events: u64) -> Option<Self> {
        match folded {
            Err(Unfolded { version, why }) => {
                Some(Self::Failed(Unfolded { version: *version, why: why.clone() }))
            }
            // An older version is that of a row that was lost or restored.
            Ok((version, _)) if *version < stored.version => {
                let why = format!("the event of version {} is missing", version + 1);
                Some(Self::Failed(Unfolded { version: version + 1, why }))
            }
            Ok((version, state)) if (*version, Some(state)) == (stored.version, stored.state.as_ref()) => {
                Some(Self::Written { changed: false, events })
            }
            Ok(_) => None,
        }
    }
}

/// What became of decisions.
#[derive(Debug)]
pub(crate) enum DecisionsSettled {
    /// All of them are written.
    All(BTreeMap<(Uuid, i64), SettleResult>),
    /// None is, since the settlements of these runs do not apply: their claims do not hold, or they have to give up.
    Void(Vec<(Uuid, i64)>),
}
