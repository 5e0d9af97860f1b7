//! Messages: a payload on a topic.

use std::time::Duration;

use crate::wait::WaitPlan;
use crate::{FindField, Stored};

/// The maximum length of a topic in bytes. A topic is also the name of a notification channel, which PostgreSQL limits.
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
    /// The topic of the message: 1 to [`TOPIC_BYTES_MAX`] bytes.
    const TOPIC: &'static str;

    /// Whether a launch fails if no handler is subscribed to the topic at that moment. Set by
    /// `#[message(handlers = "required")]`.
    const REQUIRES_HANDLER: bool = false;

    /// The type of replies of its handlers; `()` if it declares none, see [`HasReply`].
    type Reply: Stored + Send + Sync + 'static;

    /// Whether one handler may reply several times: `#[message(replies = ..)]` in place of `reply`.
    const MANY_REPLIES: bool = false;

    /// For how long the finished hierarchies that start with such a message are kept, in place of the times of the
    /// program: `#[message(retention = "90 days")]`, `#[message(retention(committed = "7 days", rolled_back = "30 days"))]`.
    const RETENTION: RetentionTimes = RetentionTimes { committed: None, rolled_back: None };

    /// Whom a run waits for that has launched such a message, if not for all of its handlers:
    /// `#[message(wait = AtLeast(2).within("10s"))]`.
    fn wait() -> Option<WaitPlan> {
        None
    }

    /// The stored names of the fields whose values the web page and the command line do not show:
    /// `#[message(redact(card, cvc))]`.
    const REDACTED: &'static [&'static str] = &[];

    /// The fields by which operators find the runs of its handlers, 8 at most: `#[message(find_by(order, customer))]`.
    const FIND_BY: &'static [FindField] = &[];
}

/// For how long finished hierarchies are kept after their end, by their outcome.
///
/// `None` is the time of the program, [`Duration::MAX`] means for ever. A hierarchy with a failed rollback is never deleted.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use std::time::Duration;
/// use scoop::RetentionTimes;
///
/// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// // As `#[message(retention(rolled_back = "90 days"))]` writes it.
/// const RETENTION: RetentionTimes = RetentionTimes { committed: None, rolled_back: Some(DAY.saturating_mul(90)) };
/// assert_ne!(RETENTION, RetentionTimes::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionTimes {
    /// The time for hierarchies that committed: an hour at least.
    pub committed: Option<Duration>,
    /// The time for hierarchies with a run that was rolled back, and for those without a handler: an hour at least.
    pub rolled_back: Option<Duration>,
}

/// A message whose handlers reply.
///
/// `#[message(reply = ..)]` and `#[message(replies = ..)]` implement it. Replying requires it, so a reply to a message
/// without a type of replies is a compile error.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{HasReply, Message};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)] // and `Message`, which writes for `#[message(reply = u64)]`:
/// struct AskPrice {
///     sku: String,
/// }
///
/// impl Message for AskPrice {
///     const TOPIC: &'static str = "ask-price";
///     type Reply = u64;
/// }
///
/// impl HasReply for AskPrice {
///     type Declared = u64;
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` declares no reply",
    label = "this message declares no reply",
    note = "write `#[message(reply = YourReply)]` on `{Self}`, or `replies = YourReply` if each of its handlers may reply \
            several times"
)]
pub trait HasReply: Message<Reply = Self::Declared> {
    /// [`Message::Reply`]. The separate name makes a message without a reply a single compile error.
    type Declared;
}
