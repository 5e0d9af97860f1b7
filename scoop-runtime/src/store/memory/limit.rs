//! The limits of sagas, and claims under them; see `limit_*.sql`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::row::{RowState, WorkingRow};
use super::state::{RowKey, State};
use crate::LimitKey;
use crate::bug::{Bug, is_injected};
use crate::find::LimitFacts;
use crate::store::limit::{Admitted, RecordedLimit};
use crate::store::{
    Candidate, ClaimedRun, FreedKeys, LimitStorage, LimitedClaim, LimitedRequest, QueueCursors, SagaLimit,
};
use crate::util::stored_time::StoredTime;

/// The runs that are parked, by handler and key, those first that were ready first.
pub(super) type Parked = BTreeMap<(Arc<str>, String), BTreeSet<(OffsetDateTime, RowKey)>>;

impl LimitStorage for MemoryStore {
    async fn publish_limits(&self, limits: &[SagaLimit]) -> sqlx::Result<()> {
        self.run("publish_limits", |state| {
            let mut is_changed = false;
            for limit in limits.iter().filter(|limit| limit.is_outdated(&state.limits)).collect::<Vec<_>>() {
                let recorded = limit.to_record(&state.limits);
                let known: Vec<_> = limit.recorded(&state.limits).cloned().collect();
                state.limits.retain(|it| !known.contains(it));
                state.limits.extend(recorded);
                let handlers: Vec<_> = known.into_iter().flat_map(|it| it.of.handlers).collect();
                for key in state.parked_keys(&handlers) {
                    state.unpark(&handlers, &key, usize::MAX);
                }
                is_changed = true;
            }
            if is_changed {
                state.raise_topology();
                state.notify(Uuid::nil());
            }
            Ok(())
        })
        .await
    }

    async fn claim_limited(&self, request: LimitedRequest<'_>) -> sqlx::Result<LimitedClaim> {
        self.run("claim_limited", |state| {
            let queue = request.queue;
            let limit = state.limits.iter().find(|limit| limit.of.saga == queue.of.saga);
            let may_claim = state.may_claim(request.claimer.worker, queue.lanes.topology);
            let Some(limit) = limit.filter(|_| may_claim).cloned() else {
                return Ok(LimitedClaim::default());
            };
            Ok(match limit.of.key_from {
                None => state.claim_of_all(&limit, &request),
                Some(_) => state.claim_by_key(&limit, &request),
            })
        })
        .await
    }
}

impl State {
    /// Claims as many runs as the limit of the saga admits.
    fn claim_of_all(&mut self, limit: &RecordedLimit, request: &LimitedRequest<'_>) -> LimitedClaim {
        let most = usize::try_from(limit.concurrency).unwrap_or(0);
        let room = most.saturating_sub(self.running_of(&limit.of.handlers));
        let room = if is_injected(Bug::ExceedLimits) { room.max(1) } else { room };
        let most = request.slots.min(room);
        let runs = match request.suspect {
            Some(_) => self.due_of(request, most),
            None => self.queue(&request.queue.lanes, most, &BTreeMap::new(), &QueueCursors::default()),
        };
        let claimed: Vec<_> =
            runs.into_iter().filter_map(|run| self.take_ready(run, request, None)).collect();
        let is_reached = room <= claimed.len();
        LimitedClaim {
            is_full: !is_reached && claimed.len() == request.slots,
            is_reached,
            runs: claimed.into_iter().map(Ok).collect(),
        }
    }

    /// Returns parked runs of the freed keys to their queues, claims due runs and parks others.
    fn claim_by_key(&mut self, limit: &RecordedLimit, request: &LimitedRequest<'_>) -> LimitedClaim {
        let handlers = &limit.of.handlers;
        let freed = match request.freed {
            FreedKeys::Some(keys) => keys.clone(),
            FreedKeys::Any => self.parked_keys(handlers),
        };
        let mut all = LimitedClaim::default();
        for key in freed {
            let running = self.running_by_key(handlers).get(&key).copied().unwrap_or(0);
            let places = usize::try_from(i64::from(limit.concurrency) - running).unwrap_or(0);
            self.unpark(handlers, &key, places);
        }
        while all.runs.len() < request.slots {
            let runs = self.due_of(request, request.slots);
            let is_full = runs.len() == request.slots;
            let candidates = runs.into_iter().filter_map(|run| {
                let candidate = self.candidate(run)?;
                let key = (request.key_of)(&candidate);
                Some((candidate, key))
            });
            let running = self.running_by_key(handlers);
            let (candidates, most) = (candidates.collect(), request.slots - all.runs.len());
            let Admitted { runs, over } = Admitted::divide(candidates, running, limit.concurrency, most);
            all.is_full = is_full && !(runs.is_empty() && over.is_empty());
            let has_passed = !over.is_empty();
            for (candidate, key) in over {
                self.park((candidate.root, candidate.id), key);
            }
            for (candidate, key) in runs {
                let run = (candidate.root, candidate.id);
                all.runs.extend(self.take_ready(run, request, Some(key)).map(Ok));
            }
            if !all.is_full || !has_passed {
                break;
            }
        }
        all
    }

    /// Up to so many due runs that the request is about, the one that has been ready longest first.
    fn due_of(&self, request: &LimitedRequest<'_>, most: usize) -> Vec<RowKey> {
        match request.suspect {
            Some(suspect) if most > 0 => {
                let run = (suspect.root, suspect.id);
                let is_due = self.row(run).is_some_and(|row| self.is_due(row));
                Vec::from_iter(is_due.then_some(run))
            }
            Some(_) => vec![],
            None => {
                let lanes = &request.queue.lanes;
                let most_of_all = most.saturating_mul(lanes.len());
                let mut due = self.queue(lanes, most_of_all, &BTreeMap::new(), &QueueCursors::default());
                due.sort_by_key(|run| self.row(*run).map(|row| (row.ready_at, row.turn)));
                due.truncate(most);
                due
            }
        }
    }

    fn is_due(&self, row: &WorkingRow) -> bool {
        row.state == RowState::Ready && row.ready_at <= self.now()
    }

    fn candidate(&self, (root, id): RowKey) -> Option<Candidate> {
        let hierarchy = self.hierarchy(root)?;
        let row = hierarchy.rows.get(&id)?;
        let message = hierarchy.record.messages.get(&row.payload_of.unwrap_or(row.message_id))?;
        let (topic, handler) = (row.topic.to_string(), row.handler.to_string());
        Some(Candidate { root, id, topic, handler, payload: message.payload.clone() })
    }

    /// The runs of these handlers that are in execution.
    fn running(&self, handlers: &[String]) -> impl Iterator<Item = &WorkingRow> {
        let rows = self.owned().filter_map(|run| self.row(run));
        rows.filter(|row| {
            row.state == RowState::Running && handlers.iter().any(|handler| **handler == *row.handler)
        })
    }

    /// How many runs of these handlers are in execution.
    pub(super) fn running_of(&self, handlers: &[String]) -> usize {
        self.running(handlers).count()
    }

    /// The same by key.
    fn running_by_key(&self, handlers: &[String]) -> BTreeMap<String, i64> {
        let mut running = BTreeMap::new();
        for key in self.running(handlers).filter_map(|row| row.limit_key.clone()) {
            *running.entry(key).or_default() += 1;
        }
        running
    }

    /// The limit of a handler.
    pub(super) fn limit_of(&self, handler: &str) -> Option<&RecordedLimit> {
        self.limits.iter().find(|it| it.of.handlers.iter().any(|name| name == handler))
    }

    /// The limit for which a run waits, with the runs in execution that count with it: those of its saga, or of its key.
    pub(super) fn limit_facts(&self, row: &WorkingRow) -> Option<LimitFacts> {
        let limit = self.limit_of(&row.handler)?;
        let key = limit.of.key_from.as_ref().zip(row.limit_key.as_ref());
        let counts = |it: &&WorkingRow| key.is_none_or(|(_, key)| it.limit_key.as_ref() == Some(key));
        let mut holders: Vec<_> =
            self.running(&limit.of.handlers).filter(counts).map(WorkingRow::id).collect();
        holders.sort_unstable();
        let concurrency = u32::try_from(limit.concurrency).unwrap_or(0);
        Some(LimitFacts { concurrency, key: key.map(|(from, key)| LimitKey::new(from, key)), holders })
    }

    /// The times since which runs are parked with the key of this one, if it is parked.
    pub(super) fn parked_beside(&self, row: &WorkingRow) -> Option<impl Iterator<Item = OffsetDateTime>> {
        row.parked_since.filter(|_| row.ready_at > self.now())?;
        let parked = self.parked.get(&(row.handler.clone(), row.limit_key.clone()?))?;
        Some(parked.iter().map(|(since, _)| *since))
    }

    /// Whether a due run waits for the limit of its saga: one that is not by key.
    pub(super) fn is_limit_reached(&self, handler: &str) -> bool {
        let limit = self.limit_of(handler).filter(|limit| limit.of.key_from.is_none());
        limit.is_some_and(|limit| {
            self.running_of(&limit.of.handlers) >= usize::try_from(limit.concurrency).unwrap_or(0)
        })
    }

    /// The keys under which runs of these handlers are parked.
    fn parked_keys(&self, handlers: &[String]) -> Vec<String> {
        let keys = self.parked.keys().filter(|(of, _)| handlers.iter().any(|handler| **handler == **of));
        keys.map(|(_, key)| key.clone()).collect()
    }

    fn park(&mut self, run: RowKey, key: String) {
        self.change(run, |row| {
            row.parked_since = Some(row.parked_since.map_or(row.ready_at, |since| since.min(row.ready_at)));
            (row.ready_at, row.limit_key, row.signal) = (StoredTime::LATEST, Some(key), None);
        });
    }

    /// Returns so many parked runs of a key to their queues. Returns whether there were any.
    fn unpark(&mut self, handlers: &[String], key: &str, places: usize) {
        let of_key = self
            .parked
            .iter()
            .filter(|((of, parked), _)| parked == key && handlers.iter().any(|handler| **handler == **of));
        let mut runs: Vec<_> = of_key.flat_map(|(_, runs)| runs).copied().collect();
        runs.sort_unstable();
        runs.truncate(if is_injected(Bug::ForgetParked) { 0 } else { places });
        for (since, run) in &runs {
            self.change(*run, |row| (row.ready_at, row.parked_since) = (*since, None));
        }
    }

    /// Claims a run for this worker if it is ready and due. It counts under the key.
    fn take_ready(
        &mut self,
        run: RowKey,
        request: &LimitedRequest<'_>,
        key: Option<String>,
    ) -> Option<ClaimedRun> {
        self.row(run).filter(|row| self.is_due(row))?;
        if key.is_some() {
            self.change(run, |row| (row.limit_key, row.parked_since) = (key.clone(), None));
        }
        let claimed = self.take(run, request.claimer.worker, &request.claimer.identifier.into())?;
        Some(ClaimedRun { limit_key: key, ..claimed })
    }
}
