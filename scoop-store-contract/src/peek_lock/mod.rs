//! Rounds on stores without transactions: a log and a queue, by order and idempotence alone.
//!
//! A message broker hands out an item and locks it for a while (*peek-lock*); a log takes one entry after another.
//! Neither does two things atomically. [`PeekLockStore`] builds rounds on them:
//!
//! 1. **The round itself is recorded first**, as one entry of a log that belongs to the item it acknowledges. That
//!    entry is its commit: before it the round has no effect, and after it all of the round will be carried out.
//! 2. **Then it is carried out**: its entries, and only then its items, so that the holder of an item finds the entries
//!    that explain it. Entries and items are deduplicated by key, so any number of processes may carry out a round any
//!    number of times.
//! 3. **The item is acknowledged last.** If the holder dies before that, the item stays in the queue. Its next holder
//!    finds the round in its log, carries out the rest, and continues with another item.
//!
//! A round that acknowledges nothing gets an extra item in the queue, which names its log. Otherwise no item would lead
//! to that log after a crash.
//!
//! *The fence* is the order of that log. Each hand-out of the item is recorded there as well, and a round counts only
//! if its holder was the latest one when it was recorded. A holder that was away for too long records its round after
//! another hand-out, which makes the round void for every reader.
//!
//! *Visibility.* Each entry and each item names its round, and before either is returned to a caller, the rest of that
//! round is carried out. Hence no caller sees a part of a round: **as soon as one caller has seen any part of it, all
//! callers see all of it**. The answer of `commit` comes later still. If the holder dies between recording the round
//! and carrying it out, the round becomes visible when the lock of the item has expired.
//!
//! Cost: a log entry and a read of the log for each dequeued item, two more entries and a read for each round, and a
//! read for each round whose entry or item is seen for the first time.
//!
//! ```
//! use std::time::Duration;
//!
//! use scoop_store_contract::reference::MemoryQueue;
//! use scoop_store_contract::peek_lock::PeekLockStore;
//! use scoop_store_contract::{Round, Rounds, Verdict};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let queue = MemoryQueue::new(Duration::from_secs(30));
//! let store = PeekLockStore::new(queue.clone());
//! store.commit(&Round::new().append("order 7", "placed", 1.into()).enqueue("brew order 7", 2.into())).await?;
//!
//! let slow = store.dequeue("a worker that is away for a minute").await?.expect("there is an item");
//! queue.advance(Duration::from_secs(60));
//! let again = store.dequeue("another").await?.expect("the lock has expired");
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

use self::log::{Log, LogNote};
use crate::{Dequeued, Entry, Item, Round, Rounds, Token, Verdict};

/// A log and a queue without transactions over several calls.
///
/// After an error it is unknown whether the call was carried out, or still will be.
pub trait PeekLock: Send + Sync {
    /// An error of the store itself.
    type Error: Error + Send + Sync + 'static;

    /// The time of the clock that decides which items are visible.
    ///
    /// # Errors
    /// If the store fails.
    fn now(&self) -> impl Future<Output = Result<OffsetDateTime, Self::Error>> + Send;

    /// Appends an entry to its stream, unless the stream has an entry with this key. An entry never gets a position
    /// before an existing one.
    ///
    /// # Errors
    /// If the store fails.
    fn append(&self, entry: &Entry) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Adds an item to the queue, unless the queue ever had an item with this key.
    ///
    /// # Errors
    /// If the store fails.
    fn enqueue(&self, item: &Item) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Hands out the item that has been visible for longest, and locks it for a while. Unless it is acknowledged by
    /// then, it becomes visible again. No two deliveries have the same token.
    ///
    /// The queue may, in rare cases, hand an item to two holders at once: the round of one of them is refused.
    ///
    /// # Errors
    /// If the store fails. An item may be locked although no holder got it.
    fn dequeue(&self, holder: &str) -> impl Future<Output = Result<Option<Delivery>, Self::Error>> + Send;

    /// Removes an item permanently. If the token no longer holds, no effect is required.
    ///
    /// # Errors
    /// If the store fails.
    fn acknowledge(&self, token: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Makes an item visible again at once. Has no effect if the token no longer holds.
    ///
    /// # Errors
    /// If the store fails.
    fn abandon(&self, token: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// All entries of a stream, in order, including at least those whose append was answered before.
    ///
    /// # Errors
    /// If the store fails.
    fn read(&self, stream: &str) -> impl Future<Output = Result<Vec<Entry>, Self::Error>> + Send;
}

/// One hand-out of an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The item.
    pub item: Item,
    /// The token to acknowledge or abandon it.
    pub token: String,
}

/// A store of rounds on a store without transactions.
#[derive(Debug)]
pub struct PeekLockStore<P> {
    store: P,
    /// The number of leading entries of each stream whose rounds are known to be carried out. A cache that saves reads.
    carried_out: Mutex<BTreeMap<String, usize>>,
}

/// The stored body of an entry or an item, with the round that it belongs to.
#[derive(Serialize, Deserialize)]
struct Part {
    /// The log of the round; `None` for a body that `PeekLockStore` did not write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    round: Option<String>,
    body: Value,
}

/// The name of a stream in the store. The prefixes keep streams, items and logs apart.
fn stream_name(stream: &str) -> String {
    format!("stream/{stream}")
}

const ITEM: &str = "item/";

fn item_name(item: &str) -> String {
    format!("{ITEM}{item}")
}

/// The log of a round that acknowledges nothing. Equal rounds share a log and so count as one.
fn launch_name(round: &Round) -> String {
    const LAUNCH: Uuid = Uuid::from_u128(0x2b3c_6a55_8f0d_4c1e_9a77_31c5_0e6d_b8f4);
    format!("launch/{}", Uuid::new_v5(&LAUNCH, json!(round).to_string().as_bytes()))
}

impl<P: PeekLock> PeekLockStore<P> {
    /// A store of rounds on this store. All processes must access the underlying store through `PeekLockStore`.
    pub fn new(store: P) -> Self {
        Self { store, carried_out: Mutex::default() }
    }

    async fn log(&self, name: &str) -> Result<Log, P::Error> {
        Ok(Log::of(&self.store.read(name).await?))
    }

    async fn note(&self, log: &str, note: &LogNote) -> Result<(), P::Error> {
        self.store.append(&note.entry(log)).await
    }

    /// Carries out the rest of the round in this log, if it has one. Several processes may do so at once.
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
        self.note(name, &LogNote::Done).await
    }

    /// Carries out the rest of the round in the log of this name.
    async fn see_to(&self, name: &str) -> Result<(), P::Error> {
        let log = self.log(name).await?;
        self.carry_out(name, &log).await
    }

    /// Records a delivery, and returns it unless a round has acknowledged the item already.
    async fn hand_out(&self, delivery: Delivery) -> Result<Option<Dequeued>, P::Error> {
        let Delivery { item, token: receipt } = delivery;
        let part = part_of(item.body);
        if let Some(round) = &part.round {
            self.see_to(round).await?;
        }
        if let Some(key) = item.key.strip_prefix(ITEM) {
            self.note(&item.key, &LogNote::HandedOut { receipt: receipt.clone() }).await?;
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

/// Parses a stored body. A body that `PeekLockStore` did not write is taken as it is.
fn part_of(body: Value) -> Part {
    Part::deserialize(&body).unwrap_or(Part { round: None, body })
}

impl<P: PeekLock> Rounds for PeekLockStore<P> {
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
        self.note(&name, &LogNote::Round { epoch, round: round.clone() }).await?;
        let log = self.log(&name).await?;
        if log.round.as_ref() != Some(round) {
            return Ok(Verdict::Refused);
        }
        if round.acknowledge.is_none() {
            // Enqueued before any part of the round is visible, so that a visible part is always completed after a
            // crash.
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
        // Recorded first, so that no round of this holder counts once another holder can get the item.
        self.note(&item_name(&token.item), &LogNote::Abandoned { epoch: token.epoch }).await?;
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
            // The rounds just carried out may have appended to this stream.
            known = parts.len();
        }
    }

    async fn take_over(&self) -> Result<u64, P::Error> {
        // The locks of the queue expire on their own.
        Ok(0)
    }
}
