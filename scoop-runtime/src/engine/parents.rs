//! Checks whether parents whose children have ended can continue.
//!
//! A check only reduces latency: the sweep finds a parent that was not woken (after a death, after a lost answer, and
//! once a minute). A parent without a step left commits in the statement that would wake it, which saves a claim and a
//! commit.
//!
//! A parent is checked after the commit of its child, never in it: of two last children, at least one check sees that both
//! have ended. The snapshot of `run_wake.sql` may be old, since the parent may have continued and wait for new children. So
//! the statement compares epochs.
//!
//! A parent with work left is claimed by the same statement, if this process has its saga and a slot: that of the child, or
//! a free one. It finishes work that has begun, so it does not wait for a turn. A check that failed is repeated without
//! claiming and without committing: otherwise a run that the first attempt claimed would count as in flight. After a few
//! consecutive checks, a parent is checked at intervals ([`CHECK_INTERVAL`]).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::local_start;
use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use super::wakeups::{ParentCheck, ParentChecks};
use crate::store::ParentRef;
use crate::telemetry;
use crate::util::retries::Attempt;

const BATCH_MAX: usize = 1_000;

/// How often a parent is checked as soon as a child has ended; later checks wait for a pause.
const IMMEDIATE_CHECKS_MAX: u32 = 4;
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The time after which earlier checks of a parent no longer count.
const FORGET_AFTER: Duration = Duration::from_millis(20);

/// Checks whether parents can continue. Checks that arrive during a query are deduplicated into the next one; parents
/// that were checked recently are deferred. A shutdown flushes all of them.
pub(super) async fn serve(engine: Arc<Engine>, mut queue: ParentChecks, drained: CancellationToken) {
    let (mut batch, mut pending) = (vec![], ParentQueue::default());
    loop {
        let next = pending.next();
        tokio::select! {
            biased;
            // The last check committed some parents: their parents are checked next, with those that arrived meanwhile.
            () = std::future::ready(()), if !batch.is_empty() => {
                while batch.len() < BATCH_MAX && let Ok(check) = queue.try_recv() {
                    batch.push(check);
                }
            }
            // Before the queue is read: a steady inflow must not starve parents that are due.
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            _ = queue.recv_many(&mut batch, BATCH_MAX) => {}
            () = drained.cancelled() => break,
        }
        let now = Instant::now();
        pending.add_all(&mut batch, now);
        batch = check_parents(&engine, pending.take(now), pending.slots.take()).await;
    }
    pending.add_all(&mut batch, Instant::now());
    while let Some(due) = pending.next() {
        batch = check_parents(&engine, pending.take(due), pending.slots.take()).await;
        pending.add_all(&mut batch, Instant::now());
    }
}

/// Checks these parents until the database answers. Some commit in that statement; returns the parents of these.
async fn check_parents(
    engine: &Arc<Engine>,
    mut parents: Vec<ParentRef>,
    mut slots: Option<OwnedSemaphorePermit>,
) -> Vec<ParentCheck> {
    // In the order in which other transactions lock them.
    parents.sort_unstable_by_key(|parent| (parent.root, parent.id));
    let mut attempt = Attempt::First;
    while !parents.is_empty() {
        match local_start::wake(engine, &parents, slots.take(), attempt).await {
            Ok(check) => return check,
            Err(error) if engine.stopping.is_cancelled() => {
                telemetry::operation_abandoned(engine.worker, "wake-up of parents", &error);
                break;
            }
            Err(error) => telemetry::operation_failed(engine.worker, "wake-up of parents", &error),
        }
        attempt = Attempt::Repeat;
        tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
    }
    vec![]
}

/// The parents to check, and those that were checked recently. A parent of many children loses one all the time, and
/// nearly always has others: so it is checked a few times at once, then at intervals, and once after its last child. A
/// parent stays here no longer than until its next check and its expiry.
#[derive(Default)]
struct ParentQueue {
    parents: HashMap<Uuid, ParentEntry>,
    /// Slots for parents that are checked at once, at most one for each.
    slots: Option<OwnedSemaphorePermit>,
    due: BinaryHeap<Reverse<(Instant, Uuid)>>,
    /// The parents that can be forgotten unless they are checked again, by time.
    forget: VecDeque<(Instant, Uuid)>,
}

#[derive(Default)]
struct ParentEntry {
    /// The next check, if there is one.
    pending: Option<ParentRef>,
    immediate_checks: u32,
    last: Option<Instant>,
}

impl ParentQueue {
    fn add_all(&mut self, check: &mut Vec<ParentCheck>, now: Instant) {
        check.drain(..).for_each(|(parent, slot)| self.add(parent, slot, now));
    }

    fn add(&mut self, parent: ParentRef, slot: Option<OwnedSemaphorePermit>, now: Instant) {
        let id = parent.id;
        let asked = self.parents.entry(id).or_default();
        match &mut asked.pending {
            Some(known) => known.at = known.at.max(parent.at),
            None => {
                let at = match asked.last {
                    Some(last) if asked.immediate_checks >= IMMEDIATE_CHECKS_MAX => {
                        now.max(last + CHECK_INTERVAL)
                    }
                    _ => now,
                };
                asked.pending = Some(parent);
                self.due.push(Reverse((at, id)));
                // A deferred parent needs no slot.
                if let Some(slot) = slot.filter(|_| at <= now) {
                    match &mut self.slots {
                        Some(slots) => slots.merge(slot),
                        None => self.slots = Some(slot),
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    fn take(&mut self, now: Instant) -> Vec<ParentRef> {
        self.forget(now);
        let mut parents = vec![];
        while let Some(Reverse((at, id))) = self.due.peek().copied()
            && at <= now
            && parents.len() < BATCH_MAX
        {
            self.due.pop();
            let asked = self.parents.entry(id).or_default();
            (asked.immediate_checks, asked.last) = (asked.immediate_checks.saturating_add(1), Some(now));
            parents.extend(asked.pending.take());
            self.forget.push_back((now + FORGET_AFTER, id));
        }
        parents
    }

    fn forget(&mut self, now: Instant) {
        while let Some((at, id)) = self.forget.front().copied()
            && at <= now
        {
            self.forget.pop_front();
            let idle = |asked: &ParentEntry| {
                asked.pending.is_none() && asked.last.is_some_and(|last| last + FORGET_AFTER <= now)
            };
            if self.parents.get(&id).is_some_and(idle) {
                self.parents.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    fn parent(id: u128, second: i64) -> ParentRef {
        let at = OffsetDateTime::from_unix_timestamp(second).unwrap();
        ParentRef { root: Uuid::nil(), id: Uuid::from_u128(id), at }
    }

    fn ids(parents: &[ParentRef]) -> Vec<u128> {
        parents.iter().map(|parent| parent.id.as_u128()).collect()
    }

    #[test]
    fn a_parent_is_asked_for_at_once_and_then_with_pauses() {
        let (mut pending, start) = (ParentQueue::default(), Instant::now());
        let mut asked = 0;
        for micros in 0..100_000 {
            let now = start + Duration::from_micros(micros);
            pending.add(parent(1, 0), None, now);
            asked += u64::try_from(pending.take(now).len()).unwrap();
            assert!(asked >= u64::from(IMMEDIATE_CHECKS_MAX) || asked > micros);
        }
        assert_eq!(asked, u64::from(IMMEDIATE_CHECKS_MAX) + 100 / 5 - 1);
    }

    #[test]
    fn the_last_question_comes_after_the_last_child() {
        let (mut pending, mut now) = (ParentQueue::default(), Instant::now());
        let mut latest = None;
        for second in 0..100 {
            now += Duration::from_micros(30);
            pending.add(parent(1, second), None, now);
            latest = pending.take(now).pop().or(latest);
        }
        assert_ne!(latest.as_ref().unwrap().at, parent(1, 99).at, "no pause was made");
        let due = pending.next().expect("a question is left");
        assert!(due <= now + CHECK_INTERVAL);
        assert!(pending.take(due - Duration::from_nanos(1)).is_empty());
        let last = pending.take(due);
        assert_eq!((last.len(), last[0].at), (1, parent(1, 99).at));
        assert_eq!(pending.next(), None);
    }

    #[test]
    fn several_children_of_one_parent_are_one_question() {
        let (mut pending, now) = (ParentQueue::default(), Instant::now());
        for (id, second) in [(1, 5), (2, 0), (1, 3)] {
            pending.add(parent(id, second), None, now);
        }
        let parents = pending.take(now);
        assert_eq!(ids(&parents), [1, 2]);
        assert_eq!(parents[0].at, parent(1, 5).at);
    }

    #[test]
    fn parent_that_is_not_added_again_is_forgotten() {
        let (mut pending, mut now) = (ParentQueue::default(), Instant::now());
        for id in 0..100_000 {
            pending.add(parent(id, 0), None, now);
            pending.take(now);
            now += Duration::from_micros(10);
        }
        let kept = pending.parents.len().max(pending.forget.len());
        assert!(kept <= 2_001, "{kept} are kept");
        pending.take(now + FORGET_AFTER);
        assert!(pending.parents.is_empty() && pending.forget.is_empty() && pending.due.is_empty());
    }

    #[test]
    fn parent_that_is_added_again_is_kept_from_the_last_time_on() {
        let (mut pending, start) = (ParentQueue::default(), Instant::now());
        for millis in [0, 15] {
            let now = start + Duration::from_millis(millis);
            pending.add(parent(1, 0), None, now);
            pending.take(now);
        }
        pending.take(start + FORGET_AFTER);
        assert_eq!(pending.parents.len(), 1, "the second time counts");
        pending.take(start + Duration::from_millis(15) + FORGET_AFTER);
        assert!(pending.parents.is_empty());
    }

    #[test]
    fn parent_that_is_checked_at_once_gets_the_slot_of_its_child_and_a_deferred_one_none() {
        let (mut pending, now) = (ParentQueue::default(), Instant::now());
        let slots = Arc::new(tokio::sync::Semaphore::new(9));
        let slot = || slots.clone().try_acquire_owned().ok();
        for id in [1, 1, 2] {
            pending.add(parent(id, 0), slot(), now);
        }
        assert_eq!(pending.slots.take().map(|slots| slots.num_permits()), Some(2), "one for each");
        for _ in 0..IMMEDIATE_CHECKS_MAX {
            pending.take(now);
            pending.slots = None;
            pending.add(parent(1, 0), slot(), now);
        }
        assert!(pending.slots.is_none() && pending.next() > Some(now), "a deferred parent needs no slot");
        assert_eq!(slots.available_permits(), 9);
    }

    #[test]
    fn parents_beyond_the_size_of_a_batch_wait_for_the_next() {
        let (mut pending, now) = (ParentQueue::default(), Instant::now());
        let count = 2 * BATCH_MAX + 1;
        (0..count).for_each(|id| pending.add(parent(u128::try_from(id).unwrap(), 0), None, now));
        let taken = [(); 4].map(|()| pending.take(now).len());
        assert_eq!(taken, [BATCH_MAX, BATCH_MAX, 1, 0]);
    }
}
