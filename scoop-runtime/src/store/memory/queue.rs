//! Queues with a limit; see `queue_*.sql` and `scoop.lease_places`.

use std::collections::BTreeMap;

use scoop_core::Priority;
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::row::{RowState, WorkingRow};
use super::state::State;
use crate::bug::{Bug, is_injected};
use crate::store::limit::RecordedLimit;
use crate::store::queue::{LEASE_MAX, limited_topics};
use crate::store::{LEASE, Lease, LeaseRequest, LimitedTopics, QUEUE_MAX, QueueLength, QueueStorage};

/// The leased capacity of the queue of each saga, by holder, with the time until which it counts.
pub(super) type Leases = BTreeMap<String, BTreeMap<Uuid, (usize, OffsetDateTime)>>;

impl QueueStorage for MemoryStore {
    async fn limited_topics(&self) -> sqlx::Result<LimitedTopics> {
        self.run("limited_topics", |state| Ok(state.limited_topics())).await
    }

    async fn lease_capacity(&self, asked: &LeaseRequest) -> sqlx::Result<Option<Lease>> {
        self.run("lease_capacity", |state| Ok(state.lease_capacity(asked))).await
    }

    async fn queue_lengths(&self, of: Option<&[String]>) -> sqlx::Result<Vec<QueueLength>> {
        // No operation with faults: the gauges read it.
        Ok(self.at_once(|state| state.queue_lengths(of)))
    }
}

impl State {
    /// The topics on which launches need capacity in the queue of a saga.
    pub(super) fn limited_topics(&self) -> LimitedTopics {
        let pairs = self.topology.iter().filter(|listed| listed.until.is_none()).filter_map(|listed| {
            let limit = self.limit_of(&listed.handler).filter(|limit| limit.queue.is_some())?;
            Some((listed.topic.to_string(), limit.of.saga.clone()))
        });
        // A saga has several names.
        let pairs: std::collections::BTreeSet<_> = pairs.collect();
        limited_topics(pairs)
    }

    fn lease_capacity(&mut self, asked: &LeaseRequest) -> Option<Lease> {
        let limit = self.limit_of(&asked.saga).filter(|limit| limit.queue.is_some())?;
        let most = limit.queue?.min(QUEUE_MAX);
        let (newest, names, now) = (limit.of.saga.clone(), limit.of.handlers.clone(), self.now());
        for (_, leases) in self.leases.iter_mut().filter(|(saga, _)| names.contains(saga)) {
            leases.retain(|_, (_, until)| *until > now && *until < now + LEASE_MAX);
        }
        let is_launched = |message: &Uuid| self.hierarchy_by_id.contains_key(message);
        let launched: Vec<_> = asked.in_doubt.iter().copied().filter(is_launched).collect();
        let taken = asked.in_use + asked.in_doubt.len() - launched.len();
        let others =
            self.leases.iter().filter(|(saga, _)| names.contains(saga)).flat_map(|(_, leases)| leases);
        let others = others.filter(|(holder, _)| **holder != asked.holder).map(|(_, (places, _))| *places);
        let others: usize = if is_injected(Bug::ForgetLeases) { 0 } else { others.sum() };
        let places = usize::try_from(most).unwrap_or(usize::MAX);
        let mut capacity = places.saturating_sub(taken).saturating_sub(others);
        if asked.needed > 0 {
            capacity = capacity.saturating_sub(self.queued(&names, capacity));
        }
        let granted = match capacity.checked_sub(asked.needed) {
            Some(rest) if asked.needed > 0 => asked.needed + (rest / 16).min(1_000),
            _ => capacity.min(asked.needed),
        };
        let leases = self.leases.entry(newest).or_default();
        if taken + granted > 0 {
            leases.insert(asked.holder, (taken + granted, now + LEASE));
        } else {
            leases.remove(&asked.holder);
        }
        Some(Lease { most, granted, is_scarce: capacity - granted < places - places / 4, launched })
    }

    fn queue_lengths(&self, of: Option<&[String]>) -> Vec<QueueLength> {
        let length = |limit: &RecordedLimit| {
            let most = limit.queue?.min(QUEUE_MAX);
            let waiting = self.queued(&limit.of.handlers, usize::try_from(most).unwrap_or(usize::MAX));
            Some(QueueLength { saga: limit.of.saga.clone(), limit: most, waiting })
        };
        let is_asked = |limit: &&RecordedLimit| of.is_none_or(|sagas| sagas.contains(&limit.of.saga));
        let mut all: Vec<_> = self.limits.iter().filter(is_asked).filter_map(length).collect();
        all.sort_by(|one, other| one.saga.cmp(&other.saga));
        all
    }

    /// How many runs of these handlers wait for a worker, up to this number.
    fn queued(&self, handlers: &[String], most: usize) -> usize {
        let is_of = |handler: &str| handlers.iter().any(|name| name == handler);
        let now = self.now();
        let queues = self.ready.iter().filter(|((handler, ..), _)| is_of(handler));
        let levels = queues.flat_map(|(_, queue)| Priority::ALL.map(|level| queue.level(level)));
        let due = levels.flat_map(|runs| runs.take_while(|(at, ..)| *at <= now)).map(|_| ());
        let parked = self.parked.iter().filter(|((handler, _), _)| is_of(handler)).flat_map(|(_, runs)| runs);
        let is_parked = |row: &WorkingRow| row.state == RowState::Ready && row.ready_at > now;
        let parked = parked.filter(|(_, run)| self.row(*run).is_some_and(is_parked)).map(|_| ());
        due.chain(parked).take(most).count()
    }
}
