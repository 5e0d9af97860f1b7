//! The limits of sagas, and claims under them; see `limit_*.sql`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::definitions::queues_of;
use super::row::{ClaimQueue, WorkingRow};
use super::state::State;
use crate::model::run::RowState;
use crate::model::stored_time::StoredTime;
use crate::store::limit::{
    Admitted, LimitChange, PAGE_MAX, RateChange, RecordedLimit, Return, Returned, Usage,
};
use crate::store::memory::row::RowKey;
use crate::store::rate::{micros, seconds_between};
use crate::store::{
    Candidate, ClaimedRun, FreedKeys, LimitStorage, LimitedClaim, LimitedRequest, QueueCursors, ReadPage,
    SagaLimit,
};

impl LimitStorage for MemoryStore {
    async fn publish_limits(&self, limits: &[SagaLimit]) -> sqlx::Result<Vec<LimitChange>> {
        self.run("publish_limits", |state| {
            let changes = LimitChange::of_all(limits, state.limits.clone());
            for change in &changes {
                let rates = change.keeps_rates_of.as_ref().and_then(|name| state.rates.remove(name));
                change.all_names.iter().for_each(|name| drop(state.rates.remove(name)));
                change.apply(&mut state.limits);
                state.forget_keys(&change.unparked_handlers);
                if let Some(mut rates) = rates {
                    rates.values_mut().for_each(|rate| rate.has_parked = false);
                    state.rates.insert(change.saga.clone(), rates);
                }
            }
            if !changes.is_empty() {
                state.raise_topology();
                state.notify(Uuid::nil());
            }
            Ok(changes)
        })
        .await
    }

    async fn claim_limited(&self, request: LimitedRequest<'_>) -> sqlx::Result<LimitedClaim> {
        self.run("claim_limited", |state| {
            let queue = request.queue;
            let limit = state.limits.iter().find(|limit| limit.of.saga == queue.of.saga);
            let may_claim = state.may_claim(request.claimer.worker, queue.queues.topology);
            let Some(limit) = limit.filter(|_| may_claim).cloned() else {
                return Ok(LimitedClaim::default());
            };
            Ok(match limit.is_by_key() {
                false => state.claim_of_all(&limit, &request),
                true => state.claim_by_key(&limit, &request),
            })
        })
        .await
    }

    async fn unpark_orphaned(&self) -> sqlx::Result<Vec<String>> {
        self.run("unpark_orphaned", |state| {
            let has_limit = |handler: &str| state.limit_of(handler).is_some_and(RecordedLimit::is_by_key);
            let left: BTreeSet<_> = state.parked.keys().map(|(handler, _)| handler.to_string()).collect();
            let left: Vec<_> = left.into_iter().filter(|handler| !has_limit(handler)).collect();
            state.unpark_all(&left);
            Ok(left)
        })
        .await
    }
}

impl State {
    fn claim_of_all(&mut self, limit: &RecordedLimit, request: &LimitedRequest<'_>) -> LimitedClaim {
        let free = self.usage(limit).capacity_of_saga(limit);
        let most = request.slots.min(free);
        let runs = match request.suspect {
            Some(_) => self.due_of(request, most),
            None => self.queue(&request.queue.queues, most, &BTreeMap::new(), request.cursors),
        };
        let claimed: Vec<_> = runs.into_iter().filter_map(|run| self.take_ready(run, request)).collect();
        let mut cursors = request.cursors.clone();
        if request.suspect.is_none() && most > 0 {
            self.record_scan(&request.queue.queues, &mut cursors);
        }
        self.record_begun(limit, [(String::new(), RateChange::begun(claimed.len()))].into());
        let is_reached = free <= claimed.len();
        LimitedClaim {
            is_full: !is_reached && claimed.len() == request.slots,
            is_reached,
            opens_in: self.usage(limit).saga_opens_in(limit),
            runs: claimed.into_iter().map(Ok).collect(),
            cursors: Some(cursors),
            ..LimitedClaim::default()
        }
    }

    /// Returns parked runs to their queues, of the freed keys and of those whose rate admits more. Then claims due runs and parks
    /// others.
    fn claim_by_key(&mut self, limit: &RecordedLimit, request: &LimitedRequest<'_>) -> LimitedClaim {
        let (mut returned, mut cursors) = (Returned::default(), request.cursors.clone());
        let next_page = self.return_parked(limit, request, &mut returned, &mut cursors);
        let page = ReadPage { next: next_page, ..ReadPage::default() };
        let is_reached = self.usage(limit).capacity_of_saga(limit) == 0;
        let mut all = LimitedClaim { is_reached, page, ..LimitedClaim::default() };
        while !all.is_reached && all.runs.len() < request.slots {
            let runs = self.due_of(&LimitedRequest { cursors: &cursors, ..*request }, request.slots);
            let is_full = runs.len() == request.slots;
            let mut unkeyed = BTreeSet::new();
            let candidates = runs.into_iter().filter_map(|run| {
                let candidate = self.candidate(run)?;
                let key = (request.key_of)(&candidate);
                unkeyed.extend(key.is_none().then_some(candidate.id));
                let key = limit.key_of(&candidate, key);
                Some((candidate, key))
            });
            let (candidates, usage): (Vec<(_, String)>, _) = (candidates.collect(), self.usage(limit));
            let keys: BTreeSet<_> = candidates.iter().map(|(_, key)| key.clone()).collect();
            if request.suspect.is_none() {
                let returns = usage.returns(limit, &returned, keys);
                returned.add(&returns);
                if self.return_earlier(limit, request, returns, &mut cursors) {
                    all.is_full = true;
                    continue;
                }
            }
            let (before, free) = (all.runs.len(), usage.capacity_of_saga(limit));
            let admitted = Admitted::divide(candidates, &usage, limit, free.min(request.slots - before));
            let changes = admitted.rate_changes(limit);
            let Admitted { runs, mut over, .. } = admitted;
            over.retain(|(run, _)| !unkeyed.contains(&run.id));
            let (has_claimed, has_passed) = (!runs.is_empty(), !over.is_empty());
            for (candidate, key) in over {
                self.park((candidate.root, candidate.id), key);
            }
            for (candidate, key) in runs {
                returned.claim(&key);
                let run = (candidate.root, candidate.id);
                let claimed = self.take_under_key(run, candidate.counted_key(&key), request);
                // The end of one that does not count leads to the next one, too.
                let limit_key = Some(key).filter(|_| limit.concurrency_by_key().is_some());
                all.runs.extend(claimed.map(|claimed| Ok(ClaimedRun { limit_key, ..claimed })));
            }
            self.record_begun(limit, changes);
            all.is_reached = all.runs.len() - before >= free;
            all.is_full = is_full && (has_claimed || has_passed) && !all.is_reached;
            if !all.is_full || !has_passed {
                break;
            }
        }
        if request.suspect.is_none() && request.slots > 0 && !is_reached {
            self.record_scan(&request.queue.queues, &mut cursors);
        }
        all.cursors = Some(cursors);
        all.opens_in = match limit.rate_by_key() {
            None => self.usage(limit).saga_opens_in(limit),
            Some(_) => {
                let rates = self.rates.get(&limit.of.saga).into_iter().flat_map(BTreeMap::values);
                let next = rates.filter(|rate| rate.has_parked).map(|rate| rate.opens_at).min();
                next.map(|at| seconds_between(micros(self.now()), at))
            }
        };
        all
    }

    /// Returns parked runs to their queues: of the freed keys, and of those whose rate admits more. Returns from which key the next
    /// page of keys begins.
    fn return_parked(
        &mut self,
        limit: &RecordedLimit,
        request: &LimitedRequest<'_>,
        returned: &mut Returned,
        cursors: &mut QueueCursors,
    ) -> Option<String> {
        let queues = queues_of(&request.queue.queues).collect::<BTreeSet<_>>();
        let now = micros(self.now());
        let FreedKeys { keys, page_from } = request.freed;
        let (mut keys, mut next_page) = (keys.iter().cloned().collect::<BTreeSet<_>>(), None);
        if let Some(from) = page_from {
            let is_own = |handler: &Arc<str>| queues.iter().any(|(of, ..)| of == handler);
            let parked = self.parked.keys().filter(|(of, key)| is_own(of) && key >= from);
            let mut page: BTreeSet<_> = parked.map(|(_, key)| key.clone()).collect();
            if let Some(next) = page.iter().nth(PAGE_MAX).cloned() {
                page.retain(|key| *key < next);
                next_page = Some(next);
            }
            let waits_for_rate = |key: &String| {
                let state = self.rates.get(&limit.of.saga).and_then(|rates| rates.get(key));
                limit.rate_by_key().zip(state).is_some_and(|(rate, state)| state.waits_for_rate(rate, now))
            };
            keys.extend(page.into_iter().filter(|key| !waits_for_rate(key)));
        }
        if limit.rate_by_key().is_some() {
            let rates = self.rates.get(&limit.of.saga).into_iter().flatten();
            let due = rates.filter(|(_, rate)| rate.has_parked && rate.opens_at <= now);
            keys.extend(due.map(|(key, _)| key.clone()));
        }
        let returns = self.usage(limit).returns(limit, returned, keys);
        returned.add(&returns);
        let mut changes = BTreeMap::new();
        for it in returns {
            let runs = self.unpark(&queues, &it.key, usize::try_from(it.runs_max).unwrap_or(0), cursors);
            let change = it.change(i64::try_from(runs).unwrap_or(i64::MAX));
            changes.insert(it.key, change);
        }
        if limit.rate_by_key().is_some() {
            self.record_begun(limit, changes);
            if let Some(rates) = self.rates.get_mut(&limit.of.saga) {
                rates.retain(|_, rate| rate.has_parked || rate.idle_at > now);
            }
        }
        next_page
    }

    /// Returns parked runs to their queues, as many as these keys admit: they come before candidates of their key that became
    /// ready later. Returns whether there were any.
    fn return_earlier(
        &mut self,
        limit: &RecordedLimit,
        request: &LimitedRequest<'_>,
        returns: Vec<Return>,
        cursors: &mut QueueCursors,
    ) -> bool {
        let queues = queues_of(&request.queue.queues).collect::<BTreeSet<_>>();
        let mut changes = BTreeMap::new();
        for it in returns {
            let runs = self.unpark(&queues, &it.key, usize::try_from(it.runs_max).unwrap_or(0), cursors);
            if runs > 0 {
                let change = it.change(i64::try_from(runs).unwrap_or(i64::MAX));
                changes.insert(it.key, change);
            }
        }
        let has_returned = !changes.is_empty();
        if limit.rate_by_key().is_some() {
            self.record_begun(limit, changes);
        }
        has_returned
    }

    fn usage(&self, limit: &RecordedLimit) -> Usage {
        let handlers = &limit.of.handlers;
        let running = match limit.concurrency {
            Some(of_key) if of_key.is_by_key => self.counted_by_key(limit),
            Some(_) => {
                let running = i64::try_from(self.running_of(handlers)).unwrap_or(i64::MAX);
                [(String::new(), running)].into()
            }
            None => BTreeMap::new(),
        };
        let rates = self.rates.get(&limit.of.saga).cloned().unwrap_or_default();
        Usage { running, now: micros(self.now()), rates }
    }

    /// Records the runs that have begun, if a rate is limited.
    fn record_begun(&mut self, limit: &RecordedLimit, changes: BTreeMap<String, RateChange>) {
        if let Some(rate) = limit.rate {
            let after = self.usage(limit).rates_after(rate.most, changes);
            self.rates.entry(limit.of.saga.clone()).or_default().extend(after);
        }
    }

    /// Up to so many due runs that the request is about, in the order of their queue times.
    fn due_of(&self, request: &LimitedRequest<'_>, most: usize) -> Vec<RowKey> {
        match request.suspect {
            Some(suspect) if most > 0 => {
                let run = (suspect.root, suspect.id);
                let is_due = self.row(run).is_some_and(|row| self.is_due(row));
                Vec::from_iter(is_due.then_some(run))
            }
            Some(_) => vec![],
            None => {
                let queues = &request.queue.queues;
                let most_of_all = most.saturating_mul(queues.len());
                let mut due = self.queue(queues, most_of_all, &BTreeMap::new(), request.cursors);
                due.sort_by_key(|run| self.row(*run).map(|row| (row.queue_time(), row.order)));
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
        let gives_up = row.rollback_requested || row.giving_up || row.is_overdue(self.now());
        Some(Candidate {
            root,
            id,
            topic,
            handler,
            payload: message.payload.clone(),
            serial_key: row.serial_key().cloned(),
            ends_unbegun: row.began_at.is_none() && gives_up,
        })
    }

    fn running(&self, handlers: &[String]) -> impl Iterator<Item = &WorkingRow> {
        let rows = self.owned().filter_map(|run| self.row(run));
        rows.filter(|row| {
            row.state == RowState::Running && handlers.iter().any(|handler| **handler == *row.handler)
        })
    }

    pub(super) fn running_of(&self, handlers: &[String]) -> usize {
        self.running(handlers).count()
    }

    fn counted<'a>(&'a self, limit: &'a RecordedLimit) -> Box<dyn Iterator<Item = &'a WorkingRow> + 'a> {
        let handlers = &limit.of.handlers;
        if !limit.serial {
            return Box::new(self.running(handlers));
        }
        let rows = self.hierarchies.values().flat_map(|hierarchy| hierarchy.rows.values());
        let is_of = move |row: &&WorkingRow| handlers.iter().any(|handler| **handler == *row.handler);
        Box::new(rows.filter(is_of).filter(|row| row.serial_key().is_some()))
    }

    fn counted_by_key(&self, limit: &RecordedLimit) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        for key in self.counted(limit).filter_map(|row| row.limit_key.clone()) {
            *counts.entry(key).or_default() += 1;
        }
        counts
    }

    pub(super) fn limit_of(&self, handler: &str) -> Option<&RecordedLimit> {
        self.limits.iter().find(|it| it.of.handlers.iter().any(|name| name == handler))
    }

    fn park(&mut self, run: RowKey, key: String) {
        let now = self.now();
        self.change(run, |row| {
            row.parked_since = Some(row.parked_since.map_or(row.ready_at, |since| since.min(row.ready_at)));
            let deadline = row.give_up_at.filter(|at| !row.giving_up && *at > now);
            (row.ready_at, row.limit_key, row.signal) =
                (deadline.unwrap_or(StoredTime::LATEST), Some(key), None);
            row.children_max = None;
        });
    }

    /// Returns so many parked runs of a key to their queues, these, and lowers the positions to them. Returns how many there were.
    fn unpark(
        &mut self,
        queues: &BTreeSet<ClaimQueue>,
        key: &str,
        runs_max: usize,
        cursors: &mut QueueCursors,
    ) -> usize {
        let of_key = self.parked.iter().filter(|((_, parked), _)| parked == key).flat_map(|(_, runs)| runs);
        let is_claimed = |row: &WorkingRow| queues.contains(&row.queue());
        let is_in_queues = |(_, run): &&(_, RowKey)| self.row(*run).is_some_and(is_claimed);
        let mut runs: Vec<_> = of_key.filter(is_in_queues).copied().collect();
        runs.sort_unstable_by_key(|(_, run)| (self.row(*run).map(WorkingRow::queue_time), *run));
        runs.truncate(runs_max);
        self.return_runs(&runs);
        runs.iter().for_each(|(since, _)| cursors.lower(*since));
        runs.len()
    }

    /// Returns all parked runs of these handlers to their queues, and takes the keys of all, for other ones.
    fn forget_keys(&mut self, handlers: &[String]) {
        self.unpark_all(handlers);
        let rows = self.hierarchies.values().flat_map(|hierarchy| hierarchy.rows.values());
        let is_keyed = |row: &&WorkingRow| {
            row.limit_key.is_some() && handlers.iter().any(|handler| **handler == *row.handler)
        };
        let keyed: Vec<_> = rows.filter(is_keyed).map(|row| (row.root(), row.id())).collect();
        for run in keyed {
            self.change(run, |row| row.limit_key = None);
        }
    }

    fn unpark_all(&mut self, handlers: &[String]) {
        let parked =
            self.parked.iter().filter(|((of, _), _)| handlers.iter().any(|handler| **handler == **of));
        let runs: Vec<_> = parked.flat_map(|(_, runs)| runs).copied().collect();
        self.return_runs(&runs);
    }

    fn return_runs(&mut self, runs: &[(OffsetDateTime, RowKey)]) {
        for (since, run) in runs {
            self.change(*run, |row| (row.ready_at, row.parked_since, row.limit_key) = (*since, None, None));
        }
    }

    fn take_ready(&mut self, run: RowKey, request: &LimitedRequest<'_>) -> Option<ClaimedRun> {
        self.row(run).filter(|row| self.is_due(row))?;
        self.take(run, request.claimer.worker, &request.claimer.identifier.into())
    }

    /// The same under a limit by key: the run counts under this key, if under any. One without a key only ends, and does not begin.
    fn take_under_key(
        &mut self,
        run: RowKey,
        key: Option<String>,
        request: &LimitedRequest<'_>,
    ) -> Option<ClaimedRun> {
        let began_at = self.row(run)?.began_at;
        let claimed = self.take_ready(run, request)?;
        self.change(run, |row| {
            row.began_at = row.began_at.filter(|_| key.is_some()).or(began_at);
            (row.limit_key, row.parked_since) = (key, None);
        });
        Some(claimed)
    }
}
