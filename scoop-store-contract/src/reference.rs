//! Stores in memory, with a clock that moves only by `advance`.
//!
//! [`Memory`] is the reference implementation of [`Rounds`]. [`MemoryQueue`] is the same without transactions: it has
//! the single operations of a message broker and a log.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;

use crate::peek_lock::{Delivery, PeekLock};
use crate::{Dequeued, Entry, Item, Round, Rounds, Token, Verdict};

/// A store in memory. Its clones are handles on the same store.
///
/// ```
/// use std::time::Duration;
///
/// use scoop_store_contract::reference::Memory;
/// use scoop_store_contract::{Round, Rounds};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = Memory::new();
/// let tomorrow = store.now().await? + Duration::from_secs(86_400);
/// store.commit(&Round::new().enqueue_at(tomorrow, "water the plants", 3.into())).await?;
/// assert!(store.dequeue("me").await?.is_none());
/// store.advance(Duration::from_secs(86_400));
/// assert!(store.dequeue("me").await?.is_some());
/// # Ok::<_, std::convert::Infallible>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Memory(Arc<Mutex<Tables>>);

/// A log and a queue in memory, without transactions. Its clones are handles on the same one.
#[derive(Clone, Debug)]
pub struct MemoryQueue(Arc<Mutex<Tables>>);

#[derive(Debug)]
struct Tables {
    now: OffsetDateTime,
    /// The duration of a lock; `None` for locks without expiry.
    lock_time: Option<Duration>,
    streams: BTreeMap<String, Stream>,
    queue: BTreeMap<String, Slot>,
    /// The keys of the items that are gone.
    gone: BTreeSet<String>,
    arrivals: u64,
}

#[derive(Debug, Default)]
struct Stream {
    entries: Vec<Entry>,
    keys: BTreeSet<String>,
}

/// An item in the queue.
#[derive(Debug)]
struct Slot {
    item: Item,
    visible_at: OffsetDateTime,
    /// The order among items that become visible at the same time.
    arrival: u64,
    epoch: u64,
    lock: Option<Lock>,
}

#[derive(Debug)]
struct Lock {
    holder: String,
    until: Option<OffsetDateTime>,
}

impl Memory {
    /// An empty store without lock expiry.
    pub fn new() -> Self {
        Self(Tables::shared(None))
    }

    /// An empty store in which the lock of an item expires after this time.
    pub fn with_lock_time(lock_time: Duration) -> Self {
        Self(Tables::shared(Some(lock_time)))
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        tables(&self.0).now += by;
    }

    /// Declares this holder dead, so that the items that it holds now can be taken over.
    pub fn kill(&self, holder: &str) {
        let mut tables = tables(&self.0);
        let now = tables.now;
        let locks = tables.queue.values_mut().filter_map(|slot| slot.lock.as_mut());
        locks.filter(|lock| lock.holder == holder).for_each(|lock| lock.until = Some(now));
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryQueue {
    /// An empty queue in which a dequeued item becomes visible again after this time.
    pub fn new(lock_time: Duration) -> Self {
        Self(Tables::shared(Some(lock_time)))
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        tables(&self.0).now += by;
    }
}

fn tables(shared: &Mutex<Tables>) -> MutexGuard<'_, Tables> {
    // A poisoned lock is harmless: no operation panics after its first change.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tables {
    fn shared(lock_time: Option<Duration>) -> Arc<Mutex<Self>> {
        let now = OffsetDateTime::UNIX_EPOCH;
        let (streams, queue, gone) = Default::default();
        Arc::new(Mutex::new(Self { now, lock_time, streams, queue, gone, arrivals: 0 }))
    }

    fn append(&mut self, entry: &Entry) {
        let stream = self.streams.entry(entry.stream.clone()).or_default();
        if stream.keys.insert(entry.key.clone()) {
            stream.entries.push(entry.clone());
        }
    }

    fn enqueue(&mut self, item: &Item) {
        if self.gone.contains(&item.key) || self.queue.contains_key(&item.key) {
            return;
        }
        self.arrivals += 1;
        let visible_at = item.visible_at.unwrap_or(self.now);
        let slot = Slot { item: item.clone(), visible_at, arrival: self.arrivals, epoch: 0, lock: None };
        self.queue.insert(item.key.clone(), slot);
    }

    fn dequeue(&mut self, holder: &str) -> Option<(Item, u64)> {
        let now = self.now;
        let free = self.queue.values_mut().filter(|slot| slot.lock.is_none() && slot.visible_at <= now);
        let slot = free.min_by_key(|slot| (slot.visible_at, slot.arrival))?;
        slot.epoch += 1;
        slot.lock = Some(Lock { holder: holder.to_owned(), until: self.lock_time.map(|time| now + time) });
        Some((slot.item.clone(), slot.epoch))
    }

    /// The item, if it is held under this epoch.
    fn held(&mut self, item: &str, epoch: u64) -> Option<&mut Slot> {
        self.queue.get_mut(item).filter(|slot| slot.lock.is_some() && slot.epoch == epoch)
    }

    fn acknowledge(&mut self, item: &str, epoch: u64) {
        if self.held(item, epoch).is_some() {
            self.queue.remove(item);
            self.gone.insert(item.to_owned());
        }
    }

    fn abandon(&mut self, item: &str, epoch: u64) {
        if let Some(slot) = self.held(item, epoch) {
            slot.lock = None;
        }
    }

    fn read(&self, stream: &str) -> Vec<Entry> {
        self.streams.get(stream).map_or(vec![], |stream| stream.entries.clone())
    }

    fn expire(&mut self) -> u64 {
        let now = self.now;
        let expired = |lock: &Lock| lock.until.is_some_and(|until| until <= now);
        let slots = self.queue.values_mut().filter(|slot| slot.lock.as_ref().is_some_and(expired));
        slots.map(|slot| slot.lock = None).fold(0, |freed, ()| freed + 1)
    }

    fn commit(&mut self, round: &Round) -> Verdict {
        if let Some(token) = &round.acknowledge {
            if self.held(&token.item, token.epoch).is_none() {
                return Verdict::Refused;
            }
            self.acknowledge(&token.item, token.epoch);
        }
        round.append.iter().for_each(|entry| self.append(entry));
        round.enqueue.iter().for_each(|item| self.enqueue(item));
        Verdict::Committed
    }
}

impl Rounds for Memory {
    type Error = Infallible;

    async fn now(&self) -> Result<OffsetDateTime, Infallible> {
        Ok(tables(&self.0).now)
    }

    async fn dequeue(&self, holder: &str) -> Result<Option<Dequeued>, Infallible> {
        let dequeued = tables(&self.0).dequeue(holder);
        Ok(dequeued.map(|(item, epoch)| {
            let token = Token { item: item.key.clone(), epoch, receipt: String::new() };
            Dequeued { item, token }
        }))
    }

    async fn commit(&self, round: &Round) -> Result<Verdict, Infallible> {
        Ok(tables(&self.0).commit(round))
    }

    async fn abandon(&self, token: &Token) -> Result<(), Infallible> {
        tables(&self.0).abandon(&token.item, token.epoch);
        Ok(())
    }

    async fn read(&self, stream: &str) -> Result<Vec<Entry>, Infallible> {
        Ok(tables(&self.0).read(stream))
    }

    async fn take_over(&self) -> Result<u64, Infallible> {
        Ok(tables(&self.0).expire())
    }
}

impl PeekLock for MemoryQueue {
    type Error = Infallible;

    async fn now(&self) -> Result<OffsetDateTime, Infallible> {
        Ok(tables(&self.0).now)
    }

    async fn append(&self, entry: &Entry) -> Result<(), Infallible> {
        tables(&self.0).append(entry);
        Ok(())
    }

    async fn enqueue(&self, item: &Item) -> Result<(), Infallible> {
        tables(&self.0).enqueue(item);
        Ok(())
    }

    async fn dequeue(&self, holder: &str) -> Result<Option<Delivery>, Infallible> {
        let mut tables = tables(&self.0);
        tables.expire();
        let dequeued = tables.dequeue(holder);
        Ok(dequeued.map(|(item, epoch)| {
            let token = format!("{epoch} {}", item.key);
            Delivery { item, token }
        }))
    }

    async fn acknowledge(&self, token: &str) -> Result<(), Infallible> {
        if let Some((item, epoch)) = parsed(token) {
            tables(&self.0).acknowledge(item, epoch);
        }
        Ok(())
    }

    async fn abandon(&self, token: &str) -> Result<(), Infallible> {
        if let Some((item, epoch)) = parsed(token) {
            tables(&self.0).abandon(item, epoch);
        }
        Ok(())
    }

    async fn read(&self, stream: &str) -> Result<Vec<Entry>, Infallible> {
        Ok(tables(&self.0).read(stream))
    }
}

/// The item of a token of [`MemoryQueue`], and its epoch; `None` for the token of another store.
fn parsed(token: &str) -> Option<(&str, u64)> {
    let (epoch, item) = token.split_once(' ')?;
    Some((item, epoch.parse().ok()?))
}
