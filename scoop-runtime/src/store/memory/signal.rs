//! Signals, and their delivery to the runs that await them; see `signal_*.sql`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use scoop_core::{SignalKey, output_name};
use time::{Date, OffsetDateTime, Time};
use uuid::Uuid;

use super::MemoryStore;
use super::definitions::queues_of;
use super::launch::min_deadline;
use super::state::{RecordedRow, State};
use crate::model::signal::ExpiredSignals;
use crate::store::memory::row::{RowKey, SignalRow, WaitingSignal};
use crate::store::{
    ClaimKey, ClaimedRun, Claimer, Deliver, Delivered, NewSignal, SignalClaimer, SignalSent, SignalStorage,
    SignalType,
};

impl SignalStorage for MemoryStore {
    async fn send_signal(
        &self,
        signal: &NewSignal,
        claimer: Option<SignalClaimer<'_>>,
    ) -> sqlx::Result<SignalSent> {
        self.run("signal", |state| {
            state.insert_signal(signal);
            let runs = state.deliver_signal(&signal.to);
            let reached = state.signals.get(&signal.id).map_or(0, |row| row.reached);
            let mut sent = SignalSent { reached, ..SignalSent::default() };
            for run in runs {
                match claimer.and_then(|claimer| state.claim_signalled(run, claimer, sent.claimed.len())) {
                    Some(claimed) => sent.claimed.push(Ok(claimed)),
                    None => sent.handlers.extend(state.row(run).map(|row| row.handler.to_string())),
                }
            }
            Ok(sent)
        })
        .await
    }

    async fn deliver_signals(&self, signals: &Deliver) -> sqlx::Result<Delivered> {
        self.run("deliver", |state| {
            let keys = match signals {
                Deliver::To(keys) => keys.clone(),
                Deliver::SentSince(_) => state.undelivered.keys().cloned().collect(),
            };
            let runs: Vec<_> = keys.iter().flat_map(|to| state.deliver_signal(to)).collect();
            let rows = runs.into_iter().filter_map(|run| state.row(run));
            let handlers: BTreeSet<_> = rows.map(|row| row.handler.to_string()).collect();
            // No row is locked between two operations.
            Ok(Delivered { handlers: handlers.into_iter().collect(), ..Delivered::default() })
        })
        .await
    }

    async fn expire_signals(&self, limit: u32) -> sqlx::Result<Vec<ExpiredSignals>> {
        self.run("expire", |state| Ok(state.expire_signals(limit.try_into().unwrap_or(usize::MAX)))).await
    }

    async fn awaited_names(&self, only_living: bool) -> sqlx::Result<Vec<String>> {
        self.run("awaited_names", |state| {
            let numbers = state.workers.values().flat_map(|worker| &worker.definitions);
            let living: BTreeSet<_> = numbers.filter_map(|number| usize::try_from(number - 1).ok()).collect();
            let definitions = state.definitions.iter().enumerate();
            let definitions = definitions.filter(|(at, _)| !only_living || living.contains(at));
            let steps = definitions.flat_map(|(_, definition)| &definition.steps);
            let names: BTreeSet<_> = steps.filter_map(|it| it.step.awaits.clone()).collect();
            Ok(names.into_iter().collect())
        })
        .await
    }

    async fn signal_types(&self, name: &str) -> sqlx::Result<Vec<SignalType>> {
        self.run("signal_types", |state| {
            let of_row = |(at, row): (usize, &RecordedRow)| {
                let is_this = |number: &i32| usize::try_from(number - 1) == Ok(at);
                let is_living = state.workers.values().any(|worker| worker.definitions.iter().any(is_this));
                let steps = row.steps.iter().filter(|it| it.step.awaits.as_deref() == Some(name));
                let known = steps.map(|it| it.signal_shape.clone());
                known.map(|shape| SignalType { shape, is_living }).collect::<Vec<_>>()
            };
            Ok(state.definitions.iter().enumerate().flat_map(of_row).collect())
        })
        .await
    }

    async fn refuse_signal(&self, key: ClaimKey, why: &str) -> sqlx::Result<Option<SignalKey>> {
        self.run("refuse_signal", |state| Ok(state.refuse_signal(key, why))).await
    }
}

#[cfg(feature = "simulation")]
impl SignalRow {
    pub(super) fn to_public(&self, id: Uuid) -> super::contents::StoredSignal {
        super::contents::StoredSignal {
            id,
            to: self.to.clone(),
            payload: self.payload.clone(),
            sent_at: self.sent_at.into(),
            expires_at: self.expires_at.into(),
            delivered_at: self.delivered_at.map(Into::into),
            reached: self.reached,
        }
    }
}

impl State {
    pub(super) fn insert_signal(&mut self, signal: &NewSignal) {
        if self.signals.contains_key(&signal.id) {
            return;
        }
        let now = self.now();
        let expires_at = now.saturating_add(signal.retention.try_into().unwrap_or(time::Duration::MAX));
        let row = SignalRow {
            to: signal.to.clone(),
            payload: signal.payload.clone(),
            #[cfg(feature = "simulation")]
            sent_at: now,
            #[cfg(feature = "simulation")]
            expires_at,
            delivered_at: None,
            reached: 0,
            trace: signal.trace.clone(),
        };
        self.undelivered.entry(row.to.clone()).or_default().insert((expires_at, now, signal.id));
        self.signals.insert(signal.id, row);
    }

    /// Takes a signal out of the kept ones: it was delivered, or its time is over.
    fn remove_waiting(&mut self, to: &SignalKey, undelivered: WaitingSignal) {
        if let Some(all) = self.undelivered.get_mut(to) {
            all.remove(&undelivered);
            if all.is_empty() {
                self.undelivered.remove(to);
            }
        }
    }

    /// Takes up to `limit` signals whose time is over out of the kept ones.
    fn expire_signals(&mut self, limit: usize) -> Vec<ExpiredSignals> {
        let now = self.now();
        let is_over = |(expires_at, ..): &&WaitingSignal| *expires_at <= now;
        let of_key = |(to, all): (&SignalKey, &BTreeSet<WaitingSignal>)| {
            all.iter().take_while(is_over).map(|undelivered| (to.clone(), *undelivered)).collect::<Vec<_>>()
        };
        let over: Vec<_> = self.undelivered.iter().flat_map(of_key).take(limit).collect();
        let mut names = BTreeMap::<String, ExpiredSignals>::new();
        for (to, undelivered) in over {
            self.remove_waiting(&to, undelivered);
            let of_name = names.entry(to.name.clone()).or_insert_with(|| ExpiredSignals { to, signals: 0 });
            of_name.signals += 1;
        }
        names.into_values().collect()
    }

    /// Has a run wait again for the signal that its step cannot read.
    fn refuse_signal(&mut self, key: ClaimKey, why: &str) -> Option<SignalKey> {
        let (run, now) = ((key.root, key.id), self.now());
        let row = self.claimed_under(key)?;
        let (step, number) = (row.step.clone()?, u32::try_from(row.suspensions - 1).unwrap_or(0));
        let record = &mut self.hierarchies.get_mut(&key.root)?.record;
        let wait = {
            let mut own = record.of_run(key.id).rev().filter(|event| event.step.as_ref() == Some(&step));
            own.find_map(|event| event.wait.clone())?
        };
        let to = wait.signal()?.clone();
        if let Some(values) = record.values.get_mut(&key.id) {
            values.remove(&output_name(&step, number));
        }
        let delivered = self.signals.values_mut().filter(|it| it.to == to && it.reached > 0);
        if let Some(signal) = delivered.max_by_key(|it| it.delivered_at) {
            signal.reached -= 1;
            signal.delivered_at = signal.delivered_at.filter(|_| signal.reached > 0);
        }
        self.change(run, |row| {
            let until = if row.giving_up { now } else { min_deadline(wait.time(), row.give_up_at).max(now) };
            row.free(until);
            (row.signal, row.signalled_by) = (Some(to.clone()), None);
            if let Some(outputs) = &mut row.outputs {
                outputs.remove(&step);
            }
            row.outputs = row.outputs.take().filter(|outputs| !outputs.is_empty());
            (row.attempts, row.retries, row.reason) = (0, 0, Some(why.to_owned()));
        });
        Some(to)
    }

    /// Claims a run that a signal has reached, if the claimer has a slot after those that are taken.
    fn claim_signalled(
        &mut self,
        run: RowKey,
        claimer: SignalClaimer<'_>,
        taken: usize,
    ) -> Option<ClaimedRun> {
        let SignalClaimer { claimer: Claimer { worker, identifier }, queues, slots } = claimer;
        let row = self.row(run)?;
        let is_own = queues_of(queues).any(|queue| queue == row.queue());
        let may_be_claimed = is_own && !row.is_unclaimed() && !row.is_suspect();
        if taken >= slots || !may_be_claimed || !self.may_claim(worker, queues.topology) {
            return None;
        }
        self.take(run, worker, &identifier.into())
    }

    /// Hands the first kept signal of this name and key to all runs that await it. Returns these.
    fn deliver_signal(&mut self, to: &SignalKey) -> Vec<RowKey> {
        let now = self.now();
        let is_due =
            |(_, _, id): &&WaitingSignal| self.signals.get(id).is_some_and(|row| row.delivered_at.is_none());
        let over = Bound::Excluded((now, OffsetDateTime::new_utc(Date::MAX, Time::MIDNIGHT), Uuid::max()));
        let first = self.undelivered.get(to).and_then(|all| all.range((over, Bound::Unbounded)).find(is_due));
        let Some(first @ (.., id)) = first.copied() else {
            return vec![];
        };
        let (payload, sender) =
            self.signals.get(&id).map(|row| (row.payload.clone(), row.trace.clone())).unwrap_or_default();
        let waiting = self.awaiting.get(to).into_iter().flatten().copied();
        let waits =
            |run: &(Uuid, Uuid)| self.row(*run).is_some_and(|row| !row.giving_up && row.ready_at > now);
        let waiting: Vec<_> = waiting.filter(waits).collect();
        for run in &waiting {
            let Some(row) = self.change(*run, |row| {
                (row.ready_at, row.signal, row.signalled_by) = (now, None, sender.clone());
                let step = row.step.clone().unwrap_or_default();
                row.outputs.get_or_insert_default().insert(step, payload.clone());
            }) else {
                continue;
            };
            let number = u32::try_from(row.suspensions - 1).unwrap_or(0);
            let name = output_name(row.step.as_deref().unwrap_or_default(), number);
            if let Some(hierarchy) = self.hierarchies.get_mut(&run.0) {
                hierarchy.record.values.entry(run.1).or_default().insert(name, payload.clone());
            }
        }
        if !waiting.is_empty() {
            if let Some(row) = self.signals.get_mut(&id) {
                (row.delivered_at, row.reached) = (Some(now), waiting.len() as u64);
            }
            self.remove_waiting(to, first);
        }
        waiting
    }
}
