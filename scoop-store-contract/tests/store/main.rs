//! The conformance suite on the stores of the core, which pass, and on stores with one flaw each, which fail.

mod flawed;
mod naive;

use std::collections::BTreeSet;
use std::time::Duration;

use scoop_store_contract::conformance::{self, Case, Fault, Faults, Faulty, Violations, World};
use scoop_store_contract::peek_lock::{PeekLock, PeekLockStore};
use scoop_store_contract::reference::{Memory, MemoryQueue};
use scoop_store_contract::{Round, Rounds, Verdict};

use flawed::{Flaw, Flawed};
use naive::{Broker, BrokerFlaw, Sequence};

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

#[tokio::test]
async fn memory_store_conforms() -> Result<(), Violations> {
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
async fn store_without_transactions_conforms() -> Result<(), Violations> {
    conformance::check(async || naive::ordered(None)).await
}

/// Asserts that a store fails this case.
async fn breaks<W: World>(case: Case, what: impl std::fmt::Debug, make: impl AsyncFn() -> W) {
    let violation = case.check(make).await.err();
    assert!(violation.is_some_and(|violation| violation.case == case), "{what:?} must break {case:?}");
}

#[tokio::test]
async fn each_flaw_is_found() {
    let flaws = [
        (Flaw::TornCommit, Case::Atomicity),
        (Flaw::TornCommit, Case::LaunchAtomicity),
        (Flaw::TornCommit, Case::CrashWindows),
        (Flaw::SeenHalfDone, Case::HalfRounds),
        (Flaw::DestructiveDequeue, Case::Atomicity),
        (Flaw::DestructiveDequeue, Case::CrashWindows),
        (Flaw::NoFence, Case::Fencing),
        (Flaw::FenceComesLast, Case::Fencing),
        (Flaw::FenceByName, Case::Fencing),
        (Flaw::NeverTakesOver, Case::CrashWindows),
        (Flaw::TakesFromTheLiving, Case::LockExpiry),
        (Flaw::SameEpoch, Case::Fencing),
        (Flaw::NeverGone, Case::Concurrency),
        (Flaw::AbandonDoesNothing, Case::Held),
        (Flaw::AbandonLoses, Case::Held),
        (Flaw::AbandonByAnybody, Case::Fencing),
        (Flaw::HeldByMany, Case::Held),
        (Flaw::RacyDequeue, Case::Concurrency),
        (Flaw::AppendsTwice, Case::Idempotence),
        (Flaw::EnqueuesTwice, Case::Idempotence),
        (Flaw::ForgetsKeys, Case::Idempotence),
        (Flaw::KeysOfRound, Case::Idempotence),
        (Flaw::Overwrites, Case::Idempotence),
        (Flaw::OneKeySpace, Case::Idempotence),
        (Flaw::IgnoresVisibility, Case::Visibility),
        (Flaw::NewestFirst, Case::Ordering),
        (Flaw::EntriesBackwards, Case::Ordering),
        (Flaw::ShortLocks, Case::LockExpiry),
        (Flaw::EndlessLocks, Case::LockExpiry),
        (Flaw::ForgetsBody, Case::Held),
        (Flaw::TornCommit, Case::ExternalEvents),
        (Flaw::AppendsTwice, Case::ExternalEvents),
        (Flaw::EntriesBackwards, Case::ExternalEvents),
        (Flaw::StaleReads, Case::ExternalEvents),
        (Flaw::OneKeySpace, Case::ContinueAsNew),
        (Flaw::DestructiveDequeue, Case::ContinueAsNew),
    ];
    for (flaw, case) in flaws {
        breaks(case, flaw, async || Flawed::new(flaw)).await;
    }
    assert_eq!(
        conformance::check(async || Flawed::new(Flaw::None)).await,
        Ok(()),
        "a store without a flaw conforms"
    );
}

#[tokio::test]
async fn order_alone_does_not_make_a_round() {
    for (sequence, case) in [
        (Sequence::AcknowledgeFirst, Case::CrashWindows),
        (Sequence::ItemsFirst, Case::HalfRounds),
        (Sequence::InOrder, Case::Atomicity),
        (Sequence::InOrder, Case::Fencing),
        (Sequence::AcknowledgeFirst, Case::ExternalEvents),
        (Sequence::AcknowledgeFirst, Case::ContinueAsNew),
    ] {
        breaks(case, sequence, async || naive::naive(sequence)).await;
    }
}

#[tokio::test]
async fn broker_with_a_flaw_breaks_the_contract() {
    for (flaw, case) in [
        (BrokerFlaw::AcknowledgesByItself, Case::CrashWindows),
        (BrokerFlaw::AppendsTwice, Case::Idempotence),
        (BrokerFlaw::EnqueuesTwice, Case::Idempotence),
        (BrokerFlaw::Stack, Case::Ordering),
        (BrokerFlaw::IgnoresVisibility, Case::Visibility),
        (BrokerFlaw::NeverLocks, Case::Held),
    ] {
        breaks(case, flaw, async || naive::ordered(Some(flaw))).await;
    }
}

/// The only cost is duplicate work.
#[tokio::test]
async fn item_with_two_holders_is_committed_once() {
    let store = PeekLockStore::new(Broker::new(Some(BrokerFlaw::NeverLocks)));
    let _ = store.commit(&Round::new().enqueue("one", 1.into())).await.unwrap();
    let first = store.dequeue("a").await.unwrap().unwrap();
    let second = store.dequeue("b").await.unwrap().unwrap();
    assert_eq!(first.item, second.item);
    let by = |holder: &str, token| Round::new().append("log", holder, 1.into()).acknowledge(token);
    assert_eq!(store.commit(&by("a", first.token)).await.unwrap(), Verdict::Refused);
    assert_eq!(store.commit(&by("b", second.token)).await.unwrap(), Verdict::Committed);
    assert!(store.dequeue("c").await.unwrap().is_none());
    let log = store.read("log").await.unwrap();
    assert_eq!(log.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["b"]);
}

/// Only a dequeue leads to such a launch, since its stream need not be read.
#[tokio::test]
async fn interrupted_launch_is_completed_by_a_dequeue() {
    let both = ["brew", "serve"];
    let round =
        Round::new().append("log", "order", 1.into()).enqueue(both[0], 2.into()).enqueue(both[1], 3.into());
    let mut outcomes = BTreeSet::new();
    for calls in 1.. {
        let (queue, faults) = (MemoryQueue::new(LOCK_TIME), Faults::default());
        faults.arm(Fault::Crash, calls);
        let doomed = PeekLockStore::new(Faulty::new(queue.clone(), faults.clone()));
        if doomed.commit(&round).await.is_ok() {
            break;
        }
        let has_begun = !queue.read("stream/log").await.unwrap().is_empty();

        let store = PeekLockStore::new(queue);
        let mut found = vec![];
        while let Some(dequeued) = store.dequeue("another").await.unwrap() {
            found.push(dequeued.item.key);
        }
        assert!(found == both || (found.is_empty() && !has_begun), "at call {calls}: {found:?}");
        outcomes.insert((has_begun, found.len()));
    }
    assert_eq!(outcomes, BTreeSet::from([(false, 0), (false, 2), (true, 2)]));
}
