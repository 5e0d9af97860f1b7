//! The decisions of commands.

use std::any::type_name;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{FindField, Json, Message, Stored};

/// The decision of a command about its entity: an event that changes the entity, or a rejection, which does not.
///
/// Both are messages, which sagas may subscribe to; a rejection may also be `()`. A rejection is an outcome of the
/// command, not a failure.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::Decision;
///
/// let decision: Decision<u32> = Decision::Accepted(7);
/// assert_eq!(decision.accepted(), Some(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", bound = "A: Stored, R: Stored")]
pub enum Decision<A, R = ()> {
    /// The event, which the entity has applied.
    Accepted(#[serde(with = "as_stored")] A),
    /// The rejection.
    Rejected(#[serde(with = "as_stored")] R),
}

/// The serde implementations of a value by [`Stored`], which is all that a message is known to be.
mod as_stored {
    use serde::{Deserializer, Serializer};

    use crate::Stored;

    pub(super) fn serialize<T: Stored, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        value.write_stored(serializer)
    }

    pub(super) fn deserialize<'de, T: Stored, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        T::read_stored(deserializer)
    }
}

impl<A, R> Decision<A, R> {
    /// Whether the command was accepted.
    pub fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted(_))
    }

    /// The event of an accepted command.
    pub fn accepted(self) -> Option<A> {
        match self {
            Self::Accepted(event) => Some(event),
            Self::Rejected(_) => None,
        }
    }

    /// The rejection of a rejected command.
    pub fn rejected(self) -> Option<R> {
        match self {
            Self::Accepted(_) => None,
            Self::Rejected(rejection) => Some(rejection),
        }
    }
}

/// A message to be launched, as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct DecidedMessage {
    /// Its topic.
    pub topic: &'static str,
    /// Its payload.
    pub payload: Value,
    /// Its Rust type, if it requires a handler.
    pub required: Option<&'static str>,
    /// [`Message::FIND_BY`].
    pub find_by: &'static [FindField],
}

impl DecidedMessage {
    /// This message.
    ///
    /// # Errors
    ///
    /// If it cannot be written as JSON.
    pub fn of<M: Message>(message: &M) -> serde_json::Result<Self> {
        let payload = Json::to_value(message)?;
        let required = M::REQUIRES_HANDLER.then(type_name::<M>);
        Ok(Self { topic: M::TOPIC, payload, required, find_by: M::FIND_BY })
    }
}

/// The rejection of a command: a message, or `()`, which launches nothing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the rejection of a command",
    label = "neither a message nor `()`",
    note = "write `#[derive(Message, Serialize, Deserialize)]` on `{Self}`, or reject with `()`"
)]
pub trait Rejection: Stored + Send + Sync + 'static {
    /// The message to launch.
    #[doc(hidden)]
    fn to_message(&self) -> serde_json::Result<Option<DecidedMessage>>;
}

impl Rejection for () {
    fn to_message(&self) -> serde_json::Result<Option<DecidedMessage>> {
        Ok(None)
    }
}

#[diagnostic::do_not_recommend]
impl<M: Message> Rejection for M {
    fn to_message(&self) -> serde_json::Result<Option<DecidedMessage>> {
        DecidedMessage::of(self).map(Some)
    }
}
