//! The messages that a saga joins, for the store and the log.

use uuid::Uuid;

/// A waiting message that was set aside, since no set can hold it.
#[derive(Debug)]
pub(crate) struct RefusedMember {
    pub(crate) saga: String,
    pub(crate) key: String,
    pub(crate) message: Uuid,
    pub(crate) why: String,
}
