//! The stores that come with the core, held against the suite; and stores with one flaw each, none of
//! which passes.

use std::time::Duration;

use scoop_core::store::conformance::{self, Faults, Faulty, Violations, World};
use scoop_core::store::memory::{Memory, MemoryQueue};
use scoop_core::store::peek_lock::Ordered;

const LOCK_TIME: Duration = Duration::from_secs(1_800);

struct Transactional {
    store: Memory,
    faults: Faults,
    lock_time: Option<Duration>,
}

impl World for Transactional {
    type Store = Faulty<Memory>;

    async fn open(&self) -> Self::Store {
        Faulty::new(self.store.clone(), self.faults.clone())
    }

    async fn advance(&self, by: Duration) {
        self.store.advance(by);
    }

    async fn kill(&self, holder: &str) {
        self.store.kill(holder);
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }

    fn lock_time(&self) -> Option<Duration> {
        self.lock_time
    }
}

struct Peeking {
    queue: MemoryQueue,
    faults: Faults,
}

impl World for Peeking {
    type Store = Ordered<Faulty<MemoryQueue>>;

    async fn open(&self) -> Self::Store {
        Ordered::new(Faulty::new(self.queue.clone(), self.faults.clone()))
    }

    async fn advance(&self, by: Duration) {
        self.queue.advance(by);
    }

    async fn kill(&self, _: &str) {
        self.queue.advance(LOCK_TIME);
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }

    fn lock_time(&self) -> Option<Duration> {
        Some(LOCK_TIME)
    }
}

#[tokio::test]
async fn the_store_in_memory_conforms() -> Result<(), Violations> {
    let faults = Faults::default;
    conformance::check(async || Transactional { store: Memory::new(), faults: faults(), lock_time: None })
        .await?;
    let store = || Memory::with_lock_time(LOCK_TIME);
    conformance::check(async || Transactional {
        store: store(),
        faults: faults(),
        lock_time: Some(LOCK_TIME),
    })
    .await
}

#[tokio::test]
async fn so_does_one_without_transactions() -> Result<(), Violations> {
    conformance::check(async || Peeking { queue: MemoryQueue::new(LOCK_TIME), faults: Faults::default() })
        .await
}
