//! Rounds on stores without transactions: a log and a queue, by order and idempotence alone.
//!
//! A message broker hands an item out and locks it for a while (*peek-lock*); a log takes one entry after
//! another. Neither takes two things at once. [`Ordered`] makes rounds of that:
//!
//! 1. **The round itself is written down first**, as one entry of a log that belongs to the item it
//!    acknowledges. That entry is its commit: before it nothing has happened, and from then on
//!    all of it is going to.
//! 2. **Then it is carried out**: its entries, and only then its items, so that whoever is handed an item
//!    finds on record where it comes from. Each is known by its key, so it does not matter how often that is
//!    begun, or by how many at a time.
//! 3. **The item is acknowledged last.** Who dies before that leaves it in the queue. Whoever is handed it
//!    next finds the round in its log, does the rest, and goes on to another item.
//!
//! A round that acknowledges nothing has no item that would lead to it, so it gets one: an item that says
//! no more than where the log is.
//!
//! *The fence* is the order of that log. Each hand-out of the item is written into it as well, and a round
//! counts only if its holder was the last one by then. A holder who was away for too long writes
//! its round down behind somebody else's hand-out, where everybody can see that it is void.
//!
//! *Who sees what.* Each entry and each item says to which round it belongs, and before anybody is shown one,
//! the rest of that round is carried out. Hence nobody sees a part of a round: **as soon as anybody has seen
//! anything of it, everybody sees all of it**. A round is over when that is so: the answer of `commit` comes
//! later still. If its holder dies between writing it down and carrying it out, it shows
//! when the lock of the item has run out.
//!
//! What that costs: a log entry and a look at the log for each item that is dequeued, two entries more
//! and a look for each round, and a look for each round that a stream or an item is read of for the first time.
//!
//! ```
//! use std::time::Duration;
//!
//! use scoop_core::store::memory::MemoryQueue;
//! use scoop_core::store::peek_lock::Ordered;
//! use scoop_core::store::{Round, Rounds, Verdict};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let queue = MemoryQueue::new(Duration::from_secs(30));
//! let store = Ordered::new(queue.clone());
//! store.commit(&Round::new().append("order 7", "placed", 1.into()).enqueue("brew order 7", 2.into())).await?;
//!
//! let slow = store.dequeue("a worker that is away for a minute").await?.expect("there is an item");
//! queue.advance(Duration::from_secs(60));
//! let again = store.dequeue("another").await?.expect("the lock has run out");
//!
//! let brewed = |held| Round::new().append("order 7", "brewed", 3.into()).acknowledge(held);
//! assert_eq!(store.commit(&brewed(slow.token)).await?, Verdict::Refused);
//! assert_eq!(store.commit(&brewed(again.token)).await?, Verdict::Committed);
//! # Ok::<_, std::convert::Infallible>(())
//! # }).unwrap();
//! ```

mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use self::log::{Log, Note};
use super::{Dequeued, Entry, Item, Round, Rounds, Token, Verdict};

/// A log and a queue in which each call stands for itself.
///
/// After an error it is unknown whether the call was carried out, or will be yet.
pub trait PeekLock: Send + Sync {
    /// What goes wrong with the store itself.
    type Error: Error + Send + Sync + 'static;

    /// What time it is, by the clock that decides which items are visible.
    ///
    /// # Errors
    /// If the store cannot be asked.
    fn now(&self) -> impl Future<Output = Result<OffsetDateTime, Self::Error>> + Send;

    /// Puts an entry at the end of its stream, unless that has one of this key. Nothing ever comes in
    /// before an entry that was there already.
    ///
    /// # Errors
    /// If the store fails.
    fn append(&self, entry: &Entry) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Puts an item into the queue, unless there was ever one of this key.
    ///
    /// # Errors
    /// If the store fails.
    fn enqueue(&self, item: &Item) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Hands out the item that has been visible for longest, and locks it for a while: then, unless it was
    /// acknowledged, it is visible again. No two deliveries have the same token.
    ///
    /// A queue that in rare cases hands an item to two holders at once is good enough: of these, one round
    /// is refused.
    ///
    /// # Errors
    /// If the store fails. An item may be locked then although nobody knows.
    fn dequeue(&self, holder: &str) -> impl Future<Output = Result<Option<Delivery>, Self::Error>> + Send;

    /// Removes an item for good. If the token no longer holds, nothing need happen.
    ///
    /// # Errors
    /// If the store fails.
    fn acknowledge(&self, token: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Makes an item visible again, at once. If the token no longer holds, nothing happens.
    ///
    /// # Errors
    /// If the store fails.
    fn abandon(&self, token: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// All entries of a stream, in order: at least those whose append had been answered before.
    ///
    /// # Errors
    /// If the store fails.
    fn read(&self, stream: &str) -> impl Future<Output = Result<Vec<Entry>, Self::Error>> + Send;
}

/// An item as it was handed out this once.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// What is to be done.
    pub item: Item,
    /// By which that is acknowledged or abandoned.
    pub token: String,
}

/// A store of rounds on one that knows no transactions.
#[derive(Debug)]
pub struct Ordered<P> {
    store: P,
    /// Up to which entry of each stream it is known that all rounds were carried out. Only saves looks.
    carried_out: Mutex<BTreeMap<String, usize>>,
}

/// What an entry or an item says, and to which round it belongs.
#[derive(Serialize, Deserialize)]
struct Part {
    /// The log of the round. None belongs to an item that leads to a log itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    round: Option<String>,
    body: Value,
}

/// The names that streams, items and logs have in the store, so that none is taken for another.
fn stream_name(stream: &str) -> String {
    format!("stream/{stream}")
}

const ITEM: &str = "item/";

fn item_name(item: &str) -> String {
    format!("{ITEM}{item}")
}

/// The log of a round that acknowledges nothing. Of two that are equal it is the same: they are one.
fn launch_name(round: &Round) -> String {
    const LAUNCH: Uuid = Uuid::from_u128(0x2b3c_6a55_8f0d_4c1e_9a77_31c5_0e6d_b8f4);
    format!("launch/{}", Uuid::new_v5(&LAUNCH, json!(round).to_string().as_bytes()))
}

impl<P: PeekLock> Ordered<P> {
    /// Makes rounds of what this store can do. All who work with it have to work with it in this way.
    pub fn new(store: P) -> Self {
        Self { store, carried_out: Mutex::default() }
    }

    async fn log(&self, name: &str) -> Result<Log, P::Error> {
        Ok(Log::of(&self.store.read(name).await?))
    }

    async fn note(&self, log: &str, note: &Note) -> Result<(), P::Error> {
        self.store.append(&note.entry(log)).await
    }

    /// Carries out the rest of a round, if there is one in this log. It does no harm if others are
    /// at it, too.
    async fn carry_out(&self, name: &str, log: &Log) -> Result<(), P::Error> {
        let Some(round) = log.round.as_ref().filter(|_| !log.done) else {
            return Ok(());
        };
        let part = |body: &Value| json!(Part { round: Some(name.to_owned()), body: body.clone() });
        for entry in &round.append {
            let stream = stream_name(&entry.stream);
            let entry = Entry { stream, key: entry.key.clone(), body: part(&entry.body) };
            self.store.append(&entry).await?;
        }
        for item in &round.enqueue {
            let item =
                Item { key: item_name(&item.key), body: part(&item.body), visible_at: item.visible_at };
            self.store.enqueue(&item).await?;
        }
        self.note(name, &Note::Done).await
    }

    /// Sees to it that nothing is half done in this log.
    async fn see_to(&self, name: &str) -> Result<(), P::Error> {
        let log = self.log(name).await?;
        self.carry_out(name, &log).await
    }

    /// Puts a delivery on record, and hands it on unless a round has acknowledged it already.
    async fn hand_out(&self, delivery: Delivery) -> Result<Option<Dequeued>, P::Error> {
        let Delivery { item, token: receipt } = delivery;
        let part = part_of(item.body);
        if let Some(round) = &part.round {
            self.see_to(round).await?;
        }
        if let Some(key) = item.key.strip_prefix(ITEM) {
            self.note(&item.key, &Note::HandedOut { receipt: receipt.clone() }).await?;
            let log = self.log(&item.key).await?;
            if let (None, Some(epoch)) = (&log.round, log.epoch_of(&receipt)) {
                let token = Token { item: key.to_owned(), epoch, receipt };
                let item = Item { key: key.to_owned(), body: part.body, visible_at: item.visible_at };
                return Ok(Some(Dequeued { item, token }));
            }
            self.carry_out(&item.key, &log).await?;
        }
        self.store.acknowledge(&receipt).await?;
        Ok(None)
    }
}

/// What is in the store that was not put there by us says what it says.
fn part_of(body: Value) -> Part {
    Part::deserialize(&body).unwrap_or(Part { round: None, body })
}

impl<P: PeekLock> Rounds for Ordered<P> {
    type Error = P::Error;

    async fn now(&self) -> Result<OffsetDateTime, P::Error> {
        self.store.now().await
    }

    async fn dequeue(&self, holder: &str) -> Result<Option<Dequeued>, P::Error> {
        while let Some(delivery) = self.store.dequeue(holder).await? {
            if let Some(dequeued) = self.hand_out(delivery).await? {
                return Ok(Some(dequeued));
            }
        }
        Ok(None)
    }

    async fn commit(&self, round: &Round) -> Result<Verdict, P::Error> {
        let (name, epoch) = match &round.acknowledge {
            Some(token) => (item_name(&token.item), token.epoch),
            None => (launch_name(round), 0),
        };
        self.note(&name, &Note::Round { epoch, round: round.clone() }).await?;
        let log = self.log(&name).await?;
        if log.round.as_ref() != Some(round) {
            return Ok(Verdict::Refused);
        }
        if round.acknowledge.is_none() {
            // Before anything is to be seen of it, so that whatever is to be seen leads to an end.
            let body = json!(Part { round: Some(name.clone()), body: Value::Null });
            self.store.enqueue(&Item { key: name.clone(), body, visible_at: None }).await?;
        }
        self.carry_out(&name, &log).await?;
        if let Some(token) = &round.acknowledge {
            self.store.acknowledge(&token.receipt).await?;
        }
        Ok(Verdict::Committed)
    }

    async fn abandon(&self, token: &Token) -> Result<(), P::Error> {
        // First on record, so that no round of this holder counts when the item is anybody's.
        self.note(&item_name(&token.item), &Note::Abandoned { epoch: token.epoch }).await?;
        self.store.abandon(&token.receipt).await
    }

    async fn read(&self, stream: &str) -> Result<Vec<Entry>, P::Error> {
        let name = stream_name(stream);
        let known = self.carried_out.lock().unwrap_or_else(PoisonError::into_inner).get(&name).copied();
        let mut known = known.unwrap_or(0);
        loop {
            let stored = self.store.read(&name).await?;
            let parts: Vec<_> = stored.into_iter().map(|entry| (entry.key, part_of(entry.body))).collect();
            let new: BTreeSet<_> =
                parts.iter().skip(known).filter_map(|(_, part)| part.round.as_ref()).collect();
            for round in &new {
                self.see_to(round).await?;
            }
            if new.is_empty() {
                let mut carried_out = self.carried_out.lock().unwrap_or_else(PoisonError::into_inner);
                let upto = carried_out.entry(name).or_default();
                *upto = known.max(*upto);
                let entry =
                    |(key, part): (String, Part)| Entry { stream: stream.to_owned(), key, body: part.body };
                return Ok(parts.into_iter().map(entry).collect());
            }
            // What was seen to may have gone on in this very stream.
            known = parts.len();
        }
    }

    async fn take_over(&self) -> Result<u64, P::Error> {
        // Locks run out by themselves.
        Ok(0)
    }
}
