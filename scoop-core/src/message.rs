//! What is emitted: a payload on a topic.

use crate::Stored;

/// The longest topic in bytes: a topic doubles as the name of a notification channel, and
/// PostgreSQL takes no longer one.
pub const TOPIC_BYTES_MAX: usize = 63;

/// A message: a payload that can be stored, and the topic it is published on.
///
/// Derive it: `#[derive(Message, Serialize, Deserialize)]`, with `#[message(topic = "...")]` to
/// name the topic. Without that attribute the topic is the type's name in kebab case.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::Message;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)] // and `Message`, which writes:
/// struct OrderPlaced {
///     order: u32,
/// }
///
/// impl Message for OrderPlaced {
///     const TOPIC: &'static str = "orders.placed";
///     type Reply = ();
/// }
///
/// assert_eq!(OrderPlaced::TOPIC, "orders.placed");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a message",
    label = "not a message",
    note = "write `#[derive(Message, Serialize, Deserialize)]` on `{Self}`"
)]
pub trait Message: Stored + Send + Sync + 'static {
    /// Where the message is published: 1 to [`TOPIC_BYTES_MAX`] bytes.
    const TOPIC: &'static str;

    /// Whether a launch fails if no handler is subscribed to the topic at that moment. Set by
    /// `#[message(handlers = "required")]`.
    const REQUIRES_HANDLER: bool = false;

    /// The type of replies of its handlers; `()` if no reply is expected.
    type Reply: Stored + Send + Sync + 'static;

    /// Whether one handler may reply several times: `#[message(replies = ..)]` in place of `reply`.
    const MANY_REPLIES: bool = false;
}
