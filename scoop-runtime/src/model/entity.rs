//! The events of an entity.

use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

/// An event of an entity as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntityEvent {
    /// The version of the entity after it.
    pub version: i64,
    /// The time at which it was recorded.
    pub at: OffsetDateTime,
    /// Its message.
    pub message: Uuid,
    /// The run of the command.
    pub run: Uuid,
    /// Topic and payload of the message; None if that is missing.
    pub event: Option<(String, Value)>,
}
