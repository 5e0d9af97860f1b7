//! Decisions about entities that another transaction has locked: they are tried again after a pause, and hold up no other.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::decisions::queue::Pending;
use crate::store::EntityId;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct LockedEntities {
    /// The decisions of each entity, in the order of arrival.
    waiting: BTreeMap<EntityId, VecDeque<Pending>>,
    next_try: Option<Instant>,
    /// The pause before the last try.
    pause: Duration,
}

impl LockedEntities {
    /// Waits until the next try. Never ends if no decision waits.
    pub(super) async fn due(&self) {
        match self.next_try {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Keeps the decisions that wait behind others about the same entity, and returns the rest.
    pub(super) fn admit(&mut self, arrived: Vec<Pending>) -> Vec<Pending> {
        let mut admitted = vec![];
        for pending in arrived {
            match self.waiting.get_mut(&pending.undecided.entity) {
                Some(waiting) => waiting.push_back(pending),
                None => admitted.push(pending),
            }
        }
        admitted
    }

    /// Takes the decisions of the next try: the same number for each entity, together `count_max` at most, or one each if
    /// there are more entities.
    pub(super) fn take(&mut self, count_max: usize) -> Vec<Pending> {
        self.next_try = None;
        let limit = (count_max / self.waiting.len().max(1)).max(1);
        let mut taken = vec![];
        for waiting in self.waiting.values_mut() {
            taken.extend(waiting.drain(..limit.min(waiting.len())));
        }
        taken
    }

    pub(super) fn put_back(&mut self, left_out: Vec<Pending>) {
        for pending in left_out.into_iter().rev() {
            self.waiting.entry(pending.undecided.entity.clone()).or_default().push_front(pending);
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        if self.waiting.is_empty() {
            (self.next_try, self.pause) = (None, Duration::ZERO);
        } else if self.next_try.is_none() {
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, PAUSE_MAX);
            self.next_try = Some(Instant::now() + self.pause);
        }
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Pending> + use<> {
        self.next_try = None;
        std::mem::take(&mut self.waiting).into_values().flatten()
    }
}
