//! The values that make up rounds.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

/// One fact in a stream. A stream has no two entries with the same key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its stream.
    pub stream: String,
    /// Its unique key in the stream.
    pub key: String,
    /// Its content.
    pub body: Value,
}

/// A piece of work. A queue never gets two items with the same key, not even after the first was acknowledged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Its unique key.
    pub key: String,
    /// Its content.
    pub body: Value,
    /// The earliest time of a dequeue, by the clock of the store; `None` for at once.
    #[serde(default, with = "time::serde::iso8601::option")]
    pub visible_at: Option<OffsetDateTime>,
}

/// The right to one item, until it is taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The key of the item.
    pub item: String,
    /// Rises each time the item is handed out.
    pub epoch: u64,
    /// Private data of the store.
    pub receipt: String,
}

/// An item, and the right to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Dequeued {
    /// The item.
    pub item: Item,
    /// The token to acknowledge or abandon it.
    pub token: Token,
}

/// All effects of one item, or of a launch, carried out atomically.
///
/// It acknowledges at most one item, as the engine settles one run at a time. Rounds for many items may
/// go to a store together, but none of them depends on the others.
///
/// ```
/// use scoop_store_contract::Round;
/// use serde_json::json;
///
/// let round = Round::new()
///     .append("order 7", "placed", json!({ "cups": 2 }))
///     .enqueue("brew order 7", json!(null));
/// assert_eq!((round.append.len(), round.enqueue.len(), round.acknowledge), (1, 1, None));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The entries to append, in this order.
    pub append: Vec<Entry>,
    /// The items to enqueue.
    pub enqueue: Vec<Item>,
    /// The item that is done.
    pub acknowledge: Option<Token>,
}

impl Round {
    /// An empty round.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry.
    #[must_use]
    pub fn append(mut self, stream: impl Into<String>, key: impl Into<String>, body: Value) -> Self {
        self.append.push(Entry { stream: stream.into(), key: key.into(), body });
        self
    }

    /// Adds an item, visible at once.
    #[must_use]
    pub fn enqueue(mut self, key: impl Into<String>, body: Value) -> Self {
        self.enqueue.push(Item { key: key.into(), body, visible_at: None });
        self
    }

    /// Adds an item, visible from this time on.
    #[must_use]
    pub fn enqueue_at(mut self, at: OffsetDateTime, key: impl Into<String>, body: Value) -> Self {
        self.enqueue.push(Item { key: key.into(), body, visible_at: Some(at) });
        self
    }

    /// Sets the item to acknowledge.
    #[must_use]
    pub fn acknowledge(mut self, token: Token) -> Self {
        self.acknowledge = Some(token);
        self
    }
}

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a round that was refused has left nothing"]
pub enum Verdict {
    /// All of it was carried out.
    Committed,
    /// The holder has lost the item, and this call had no effect.
    Refused,
}
