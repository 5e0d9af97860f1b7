//! The events of an entity, and where they cannot be applied.

use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredEntityEvent {
    pub(crate) version: i64,
    pub(crate) at: OffsetDateTime,
    pub(crate) message: Uuid,
    pub(crate) run: Uuid,
    /// Topic and payload of the message; None if that is missing.
    pub(crate) event: Option<(String, Value)>,
}

/// An event, or the state after it, with which an entity cannot be rebuilt.
#[derive(Debug, PartialEq)]
pub(crate) struct Unfolded {
    pub(crate) version: i64,
    pub(crate) why: String,
}
