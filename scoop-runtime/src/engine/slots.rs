//! The slots, and the number of slots of each handler, so that the next ones go to handlers with few.
//!
//! A slot goes to the handler with the fewest runs in flight in this process; among equals, to the run that has been ready
//! longest. So a backlog of one handler, of any length, delays no other. Some slots are reserved: no claim takes them, and a
//! handler with hardly any runs in flight gets one for a message that this process launches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::suspects::SuspectPermit;
use crate::util::sync::{Mutex, MutexGuard, lock};

/// One slot of this number is reserved.
const RESERVED_PART: usize = 16;

/// The reserved slots: no claim takes them, so a backlog does not either. They are for runs that this process launches
/// of handlers with hardly any run in flight: these need not wait until a run of the backlog has ended.
pub(super) struct ReservedSlots {
    slots: Arc<Semaphore>,
    /// A handler with this number of runs gets no reserved slot.
    reserve_below: usize,
}

impl ReservedSlots {
    /// Divides the slots. Returns the reserved ones and the number of the others.
    pub(super) fn new(concurrency: usize) -> (Self, usize) {
        let concurrency = concurrency.min(Semaphore::MAX_PERMITS);
        let reserved = concurrency / RESERVED_PART;
        let few = reserved.div_ceil(4);
        (Self { slots: Arc::new(Semaphore::new(reserved)), reserve_below: few }, concurrency - reserved)
    }

    /// A reserved slot for a run of this handler, if it has few runs.
    pub(super) fn take(&self, counts: &RunningCounts, handler: &str) -> Option<Slot> {
        let permit =
            (counts.get(handler) < self.reserve_below).then(|| self.slots.clone().try_acquire_owned());
        Some(Slot::Reserved(permit?.ok()?))
    }
}

/// The right to execute one run.
pub(super) enum Slot {
    Shared(OwnedSemaphorePermit),
    Reserved(#[expect(dead_code, reason = "it is there to be dropped")] OwnedSemaphorePermit),
}

/// The number of runs in execution by handler. Handlers without one have no entry.
#[derive(Clone, Default)]
pub(super) struct RunningCounts(Arc<Mutex<BTreeMap<String, usize>>>);

/// One run of a handler, as long as it has a slot.
pub(super) struct CountGuard {
    counts: RunningCounts,
    handler: String,
}

/// The slot of a run in execution. The count is dropped first, so that a claim for the slot sees the new count.
pub(super) struct SlotLease {
    count: CountGuard,
    slot: Slot,
    suspect: Option<SuspectPermit>,
    /// Dropped after the slot, so that the next run of the saga finds one.
    limit: Option<LimitGuard>,
}

/// The capacity of limits that ended runs of this process have freed, by handler.
#[derive(Clone, Default)]
pub(super) struct FreedByHandler(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

/// The capacity of the limits of one saga that ended runs of this process have freed.
#[derive(Default)]
pub(super) struct FreedCapacity {
    pub(super) any: bool,
    /// The keys of the ended runs.
    pub(super) keys: Vec<String>,
}

impl FreedByHandler {
    pub(super) fn take(&self, handlers: &[String]) -> FreedCapacity {
        let mut all = lock(&self.0);
        let mut freed = FreedCapacity::default();
        for keys in handlers.iter().filter_map(|handler| all.remove(handler)) {
            freed.any = true;
            freed.keys.extend(keys);
        }
        freed
    }
}

/// A run that counts for the limit of its saga. When it is dropped, the next runs of such sagas are claimed.
pub(super) struct LimitGuard {
    pub(super) handler: String,
    pub(super) key: Option<String>,
    pub(super) freed: FreedByHandler,
    pub(super) next: Arc<Notify>,
}

impl Drop for LimitGuard {
    fn drop(&mut self) {
        lock(&self.freed.0).entry(std::mem::take(&mut self.handler)).or_default().extend(self.key.take());
        self.next.notify_one();
    }
}

impl SlotLease {
    pub(super) fn new(count: CountGuard, slot: Slot) -> Self {
        Self { count, slot, suspect: None, limit: None }
    }

    pub(super) fn of_suspect(count: CountGuard, slot: Slot, permit: SuspectPermit) -> Self {
        Self { count, slot, suspect: Some(permit), limit: None }
    }

    /// The lease of a run that counts for a limit.
    pub(super) fn under_limit(self, limit: Option<LimitGuard>) -> Self {
        Self { limit, ..self }
    }

    /// The run has recorded an event, so it is no suspect.
    pub(super) fn clear_suspicion(&mut self) {
        self.suspect = None;
    }

    /// The slot, unless it is reserved.
    pub(super) fn into_shared_slot(self) -> Option<OwnedSemaphorePermit> {
        let Self { count, slot, suspect, limit } = self;
        drop((count, suspect, limit));
        match slot {
            Slot::Shared(permit) => Some(permit),
            Slot::Reserved(_) => None,
        }
    }
}

impl RunningCounts {
    /// Adds one to the count of a handler, until that is dropped.
    pub(super) fn take(&self, handler: &str) -> CountGuard {
        *self.map().entry(handler.to_owned()).or_default() += 1;
        CountGuard { counts: self.clone(), handler: handler.to_owned() }
    }

    /// The counts, in the form of the claim.
    pub(super) fn snapshot(&self) -> BTreeMap<String, usize> {
        self.map().clone()
    }

    pub(super) fn get(&self, handler: &str) -> usize {
        self.map().get(handler).copied().unwrap_or(0)
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        lock(&self.0)
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        let mut map = self.counts.map();
        let last = map.get_mut(&self.handler).is_none_or(|count| {
            *count -= 1;
            *count == 0
        });
        if last {
            map.remove(&self.handler);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spare_slots_are_for_handlers_with_few() {
        let (reserved, common) = ReservedSlots::new(96);
        assert_eq!((common, reserved.reserve_below), (90, 2));
        let counts = RunningCounts::default();
        let (_crowd, _one) = ([(); 2].map(|()| counts.take("crowd")), counts.take("lone"));
        assert!(reserved.take(&counts, "crowd").is_none());
        let mut taken = vec![];
        taken.extend(std::iter::from_fn(|| reserved.take(&counts, "lone")));
        assert_eq!(taken.len(), 6);
        drop(taken.pop());
        assert!(reserved.take(&counts, "lone").is_some());
        assert!(ReservedSlots::new(15).0.take(&counts, "lone").is_none(), "there is none to spare");
    }

    #[test]
    fn ended_runs_are_not_counted() {
        let counts = RunningCounts::default();
        let now = || serde_json::to_value(counts.snapshot()).unwrap();
        let (one, another, other) = (counts.take("a"), counts.take("a"), counts.take("b"));
        assert_eq!(now(), json!({ "a": 2, "b": 1 }));
        drop((one, other));
        assert_eq!(now(), json!({ "a": 1 }));
        drop(another);
        assert_eq!(now(), json!({}));
    }

    #[test]
    fn places_of_ended_runs_are_taken_once() {
        let (freed, next) = (FreedByHandler::default(), Arc::new(Notify::new()));
        let run = |handler: &str, key: Option<&str>| LimitGuard {
            handler: handler.to_owned(),
            key: key.map(str::to_owned),
            freed: freed.clone(),
            next: next.clone(),
        };
        drop([run("a", Some("1")), run("a", Some("2")), run("former a", Some("3")), run("b", None)]);
        let of = |handler: &str| {
            let FreedCapacity { any, keys } = freed.take(&[handler.to_owned(), format!("former {handler}")]);
            (any, keys)
        };
        assert_eq!(of("a"), (true, vec!["1".into(), "2".into(), "3".into()]));
        assert_eq!(of("a"), (false, vec![]));
        assert_eq!(of("b"), (true, vec![]));
    }
}

#[cfg(test)]
mod interleavings {
    use serde_json::json;
    use shuttle::future::block_on;
    use shuttle::rand::{Rng, thread_rng};
    use shuttle::thread;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::util::sync::explore;

    /// The count of the former run is gone when its slot is granted; otherwise the next claim would use a wrong count.
    #[test]
    fn a_share_is_gone_before_its_slot_is_free() {
        explore(|| {
            let (counts, slots) = (RunningCounts::default(), Arc::new(Semaphore::new(1)));
            let runs = ["a", "b", "a"].map(|handler| {
                let (counts, slots) = (counts.clone(), slots.clone());
                thread::spawn(move || {
                    let slot = block_on(slots.acquire_owned()).unwrap();
                    let now = |counts: &RunningCounts| serde_json::to_value(counts.snapshot()).unwrap();
                    assert_eq!(now(&counts), json!({}));
                    let lease = SlotLease::new(counts.take(handler), Slot::Shared(slot));
                    assert_eq!(now(&counts), json!({ handler: 1 }));
                    match thread_rng().gen_bool(0.5) {
                        true => drop(lease),
                        false => drop(lease.into_shared_slot()),
                    }
                })
            });
            runs.into_iter().for_each(|run| run.join().unwrap());
            assert!(counts.map().is_empty());
        });
    }

    #[test]
    fn runs_of_concurrent_threads_are_all_counted() {
        explore(|| {
            let counts = RunningCounts::default();
            let runs = ["a", "b", "a", "a"].map(|handler| {
                let counts = counts.clone();
                thread::spawn(move || {
                    let count = counts.take(handler);
                    assert!(counts.map()[handler] >= 1);
                    drop(count);
                })
            });
            runs.into_iter().for_each(|run| run.join().unwrap());
            assert!(counts.map().is_empty());
        });
    }
}
