//! The values of which rounds are made.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

/// One fact in a stream, known by its key: a stream has no two entries of one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it belongs.
    pub stream: String,
    /// By which it is known in its stream.
    pub key: String,
    /// What it says.
    pub body: Value,
}

/// Something to be done, known by its key: a queue never gets two items of one key, not even when the
/// first is long gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// By which it is known.
    pub key: String,
    /// What it says.
    pub body: Value,
    /// From when on it can be dequeued, by the clock of the store; at once if it does not say.
    #[serde(default, with = "time::serde::iso8601::option")]
    pub visible_at: Option<OffsetDateTime>,
}

/// The right to one item, for as long as nobody takes it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The key of the item.
    pub item: String,
    /// Rises each time the item is handed to somebody.
    pub epoch: u64,
    /// By which the store knows it: nobody else's business.
    pub receipt: String,
}

/// An item, and the right to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Dequeued {
    /// What is to be done.
    pub item: Item,
    /// By which that is acknowledged or abandoned.
    pub token: Token,
}

/// All that follows from one item, or starts something: carried out altogether or not at all.
///
/// It acknowledges one item at most, as the engine settles one run at a time. Rounds for many items may
/// go to a store together, but none of them depends on the others.
///
/// ```
/// use scoop_core::store::Round;
/// use serde_json::json;
///
/// let round = Round::new()
///     .append("order 7", "placed", json!({ "cups": 2 }))
///     .enqueue("brew order 7", json!(null));
/// assert_eq!((round.append.len(), round.enqueue.len(), round.acknowledge), (1, 1, None));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What is put on record, in this order.
    pub append: Vec<Entry>,
    /// What is to be done next.
    pub enqueue: Vec<Item>,
    /// What has been done.
    pub acknowledge: Option<Token>,
}

impl Round {
    /// A round of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with one entry more.
    #[must_use]
    pub fn append(mut self, stream: impl Into<String>, key: impl Into<String>, body: Value) -> Self {
        self.append.push(Entry { stream: stream.into(), key: key.into(), body });
        self
    }

    /// The same, with one more item, visible at once.
    #[must_use]
    pub fn enqueue(mut self, key: impl Into<String>, body: Value) -> Self {
        self.enqueue.push(Item { key: key.into(), body, visible_at: None });
        self
    }

    /// The same, with one more item, visible from this time on.
    #[must_use]
    pub fn enqueue_at(mut self, at: OffsetDateTime, key: impl Into<String>, body: Value) -> Self {
        self.enqueue.push(Item { key: key.into(), body, visible_at: Some(at) });
        self
    }

    /// The same, for this item.
    #[must_use]
    pub fn acknowledge(mut self, token: Token) -> Self {
        self.acknowledge = Some(token);
        self
    }
}

/// What became of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a round that was refused has left nothing"]
pub enum Verdict {
    /// All of it is there.
    Committed,
    /// The item is not the holder's any more: this call has left nothing.
    Refused,
}
