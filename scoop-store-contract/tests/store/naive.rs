//! Naive rounds without transactions or crash safety, and brokers that break the contract of [`PeekLock`].

use std::time::Duration;

use scoop_store_contract::conformance::{Faults, Faulty, FaultyError, World};
use scoop_store_contract::peek_lock::{Delivery, PeekLock, PeekLockStore};
use scoop_store_contract::reference::MemoryQueue;
use scoop_store_contract::{Dequeued, Entry, Item, Round, Rounds, Token, Verdict};
use time::OffsetDateTime;

use crate::LOCK_TIME;

/// The order in which the parts of a round are carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sequence {
    AcknowledgeFirst,
    ItemsFirst,
    /// The correct order, but without recording the round first.
    InOrder,
}

/// A store that carries out a round as separate calls.
pub(crate) struct Naive {
    queue: Faulty<MemoryQueue>,
    sequence: Sequence,
}

impl Naive {
    async fn append_all(&self, round: &Round) -> Result<(), FaultyError> {
        for entry in &round.append {
            self.queue.append(entry).await?;
        }
        Ok(())
    }

    async fn enqueue_all(&self, round: &Round) -> Result<(), FaultyError> {
        for item in &round.enqueue {
            self.queue.enqueue(item).await?;
        }
        Ok(())
    }

    async fn acknowledge(&self, round: &Round) -> Result<(), FaultyError> {
        match &round.acknowledge {
            Some(token) => self.queue.acknowledge(&token.receipt).await,
            None => Ok(()),
        }
    }
}

impl Rounds for Naive {
    type Error = FaultyError;

    async fn now(&self) -> Result<OffsetDateTime, FaultyError> {
        self.queue.now().await
    }

    async fn dequeue(&self, holder: &str) -> Result<Option<Dequeued>, FaultyError> {
        let delivery = self.queue.dequeue(holder).await?;
        Ok(delivery.map(|Delivery { item, token }| {
            let epoch = token.split(' ').next().unwrap().parse().unwrap();
            let token = Token { item: item.key.clone(), epoch, receipt: token };
            Dequeued { item, token }
        }))
    }

    async fn commit(&self, round: &Round) -> Result<Verdict, FaultyError> {
        match self.sequence {
            Sequence::AcknowledgeFirst => {
                self.acknowledge(round).await?;
                self.append_all(round).await?;
                self.enqueue_all(round).await?;
            }
            Sequence::ItemsFirst => {
                self.enqueue_all(round).await?;
                self.append_all(round).await?;
                self.acknowledge(round).await?;
            }
            Sequence::InOrder => {
                self.append_all(round).await?;
                self.enqueue_all(round).await?;
                self.acknowledge(round).await?;
            }
        }
        Ok(Verdict::Committed)
    }

    async fn abandon(&self, token: &Token) -> Result<(), FaultyError> {
        self.queue.abandon(&token.receipt).await
    }

    async fn read(&self, stream: &str) -> Result<Vec<Entry>, FaultyError> {
        self.queue.read(stream).await
    }

    async fn take_over(&self) -> Result<u64, FaultyError> {
        Ok(0)
    }
}

/// The flaw of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokerFlaw {
    /// It acknowledges an item when it hands it out.
    AcknowledgesByItself,
    /// Each append is an entry.
    AppendsTwice,
    /// Each enqueue is an item.
    EnqueuesTwice,
    /// A new entry comes first.
    Stack,
    /// All items are visible at once.
    IgnoresVisibility,
    /// Nothing is ever locked.
    NeverLocks,
}

/// A broker with a flaw.
#[derive(Clone)]
pub(crate) struct Broker {
    queue: MemoryQueue,
    flaw: Option<BrokerFlaw>,
    count: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl Broker {
    pub(crate) fn new(flaw: Option<BrokerFlaw>) -> Self {
        Self { queue: MemoryQueue::new(LOCK_TIME), flaw, count: std::sync::Arc::default() }
    }

    fn is(&self, flaw: BrokerFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// A new key. `known` restores this one when it leaves the broker.
    fn unknown(&self, key: &str) -> String {
        let count = self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        format!("{key}\u{0}{count}")
    }
}

fn known(key: &mut String) {
    key.truncate(key.find('\u{0}').unwrap_or(key.len()));
}

impl PeekLock for Broker {
    type Error = std::convert::Infallible;

    async fn now(&self) -> Result<OffsetDateTime, Self::Error> {
        self.queue.now().await
    }

    async fn append(&self, entry: &Entry) -> Result<(), Self::Error> {
        let mut entry = entry.clone();
        if self.is(BrokerFlaw::AppendsTwice) {
            entry.key = self.unknown(&entry.key);
        }
        self.queue.append(&entry).await
    }

    async fn enqueue(&self, item: &Item) -> Result<(), Self::Error> {
        let mut item = item.clone();
        if self.is(BrokerFlaw::EnqueuesTwice) {
            item.key = self.unknown(&item.key);
        }
        item.visible_at = item.visible_at.filter(|_| !self.is(BrokerFlaw::IgnoresVisibility));
        self.queue.enqueue(&item).await
    }

    async fn dequeue(&self, holder: &str) -> Result<Option<Delivery>, Self::Error> {
        if self.is(BrokerFlaw::NeverLocks) {
            self.queue.advance(LOCK_TIME);
        }
        let mut delivery = self.queue.dequeue(holder).await?;
        if let Some(delivery) = &mut delivery {
            if self.is(BrokerFlaw::AcknowledgesByItself) {
                self.queue.acknowledge(&delivery.token).await?;
            }
            known(&mut delivery.item.key);
        }
        Ok(delivery)
    }

    async fn acknowledge(&self, token: &str) -> Result<(), Self::Error> {
        self.queue.acknowledge(token).await
    }

    async fn abandon(&self, token: &str) -> Result<(), Self::Error> {
        self.queue.abandon(token).await
    }

    async fn read(&self, stream: &str) -> Result<Vec<Entry>, Self::Error> {
        let mut entries = self.queue.read(stream).await?;
        entries.iter_mut().for_each(|entry| known(&mut entry.key));
        if self.is(BrokerFlaw::Stack) {
            entries.reverse();
        }
        Ok(entries)
    }
}

/// A world without transactions, and the constructor of rounds on it.
pub(crate) struct Peeking<P, F> {
    queue: P,
    faults: Faults,
    advance: fn(&P, Duration),
    rounds: F,
}

impl<P: PeekLock + Clone, S: Rounds, F: Fn(Faulty<P>) -> S> World for Peeking<P, F> {
    type Store = S;

    async fn open(&self) -> S {
        (self.rounds)(Faulty::new(self.queue.clone(), self.faults.clone()))
    }

    async fn advance(&self, by: Duration) {
        (self.advance)(&self.queue, by);
    }

    /// A holder is dead as soon as its locks have run out.
    async fn kill(&self, _: &str) {
        (self.advance)(&self.queue, LOCK_TIME);
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }

    fn lock_time(&self) -> Option<Duration> {
        Some(LOCK_TIME)
    }
}

/// [`PeekLockStore`] on a broker.
pub(crate) fn ordered(flaw: Option<BrokerFlaw>) -> impl World {
    let (queue, faults) = (Broker::new(flaw), Faults::default());
    let advance = |broker: &Broker, by| broker.queue.advance(by);
    Peeking { queue, faults, advance, rounds: PeekLockStore::<Faulty<Broker>>::new }
}

/// A naive store with this order of calls.
pub(crate) fn naive(sequence: Sequence) -> impl World {
    let (queue, faults) = (MemoryQueue::new(LOCK_TIME), Faults::default());
    let rounds = move |queue| Naive { queue, sequence };
    Peeking { queue, faults, advance: MemoryQueue::advance, rounds }
}
