//! Recorded definitions of sagas, and the living workers with their current ones; see `definition_*.sql`,
//! `topology_*.sql` and `run_hand_over.sql`.

use std::collections::BTreeSet;

use scoop_core::RecordedStep;
use uuid::Uuid;

use super::MemoryStore;
use super::row::{ClaimQueue, WorkingRow};
use super::state::{RecordedRow, State, Worker};
use crate::model::run::RowState;
use crate::store::claim_queues::ClaimQueues;
use crate::store::memory::row::RowKey;
use crate::store::types::UNKNOWN_MAX;
use crate::store::{
    DefinitionStorage, HandOver, HandOverRequest, LivingWorker, NewDefinition, Registered, Topology,
};

impl Worker {
    pub(super) fn position(&self, topic: &str, handler: &str) -> Option<usize> {
        self.topics.iter().zip(&self.handlers).position(|(on, own)| on == topic && own == handler)
    }
}

impl DefinitionStorage for MemoryStore {
    async fn publish_definitions(&self, definitions: &[NewDefinition]) -> sqlx::Result<Vec<(String, i32)>> {
        self.run("publish_definitions", |state| {
            let number = |definition: &NewDefinition| {
                let is_same = |it: &RecordedRow| {
                    it.handler == definition.handler && it.fingerprint == definition.fingerprint
                };
                let known = state.definitions.iter().position(is_same);
                let at = known.unwrap_or(state.definitions.len());
                if known.is_none() {
                    let NewDefinition { handler, fingerprint, steps } = definition;
                    let (handler, fingerprint, steps) = (handler.clone(), *fingerprint, steps.clone());
                    state.definitions.push(RecordedRow { handler, fingerprint, steps });
                }
                (definition.handler.clone(), i32::try_from(at + 1).unwrap_or(i32::MAX))
            };
            Ok(definitions.iter().map(number).collect())
        })
        .await
    }

    async fn definition_steps(
        &self,
        definition: i32,
        handler: &str,
    ) -> sqlx::Result<Option<Vec<RecordedStep>>> {
        self.run("definition_steps", |state| {
            let at = usize::try_from(definition - 1).ok();
            let recorded = at.and_then(|at| state.definitions.get(at)).filter(|it| it.handler == handler);
            Ok(recorded.map(RecordedRow::recorded_steps))
        })
        .await
    }

    async fn enlist(&self, registered: Registered<'_>, changed: &[String]) -> sqlx::Result<()> {
        self.run("enlist", |state| {
            if let Some(worker) = state.workers.get_mut(&registered.worker) {
                worker.topics = registered.topics.to_vec();
                worker.handlers = registered.handlers.to_vec();
                worker.definitions = registered.definitions.to_vec();
            }
            state.change_topology(changed);
            state.notify(registered.worker);
            Ok(())
        })
        .await
    }

    async fn read_topology(&self, sagas: &[String]) -> sqlx::Result<Topology> {
        self.run("living_workers", |state| {
            let living = state.workers.iter().map(|(id, worker)| LivingWorker {
                id: *id,
                topology: worker.topology,
                acknowledged: worker.acknowledged,
                started_at: worker.started_at,
                topics: worker.topics.clone(),
                handlers: worker.handlers.clone(),
                definitions: worker.definitions.clone(),
            });
            let limited = state.limits.iter().filter(|limit| limit.is_of_claims()).filter_map(|limit| {
                let mut of = limit.of.clone();
                of.handlers.retain(|name| sagas.contains(name));
                (!of.handlers.is_empty()).then_some(of)
            });
            Ok(Topology { living: living.collect(), limited: limited.collect(), ..Topology::default() })
        })
        .await
    }

    async fn mark_stuck(&self, refusal: HandOverRequest<'_>) -> sqlx::Result<HandOver> {
        let HandOverRequest { key, reason, definition, or_stuck, only, .. } = refusal;
        self.run("set_aside", |state| {
            let Some(row) = state.claimed_under(key) else {
                return Ok(HandOver::Void);
            };
            let (handler, topic) = (row.handler.clone(), row.topic.clone());
            // Each settlement clears the reason. A definition that refused the run before it may continue the run now.
            let moved_on = row.reason.is_none();
            let mut refused_by = if moved_on { vec![] } else { row.refused_by.clone() };
            refused_by.push(definition);
            let target = state.newest_definition(&topic, &handler, &refused_by, only);
            if target.is_none() && !or_stuck {
                return Ok(HandOver::Void);
            }
            let (now, reason) = (state.now(), reason.replace('\0', ""));
            state.change((key.root, key.id), |row| {
                row.free(now);
                if target.is_none() {
                    row.state = RowState::Stuck;
                }
                row.reason = Some(reason);
                (row.reserved_for, row.refused_by) = (target.unwrap_or(0), refused_by);
            });
            if target.is_none() {
                state.send_stuck((key.root, key.id));
            }
            Ok(if target.is_none() { HandOver::Stuck } else { HandOver::HandedOver })
        })
        .await
    }
}

pub(super) fn queues_of(queues: &ClaimQueues) -> impl Iterator<Item = ClaimQueue> {
    queues.each().map(|(topic, handler, queue)| (handler.into(), topic.into(), queue))
}

impl State {
    pub(super) fn may_claim(&self, worker: Uuid, topology: i64) -> bool {
        self.workers.get(&worker).is_some_and(|worker| worker.topology == topology)
    }

    /// The definition of the worker that started last, of those that are not among the `refused`.
    fn newest_definition(
        &self,
        topic: &str,
        handler: &str,
        refused: &[i32],
        only: Option<i32>,
    ) -> Option<i32> {
        let of_worker = |(id, worker): (&Uuid, &Worker)| {
            let at = worker.position(topic, handler)?;
            Some((worker.started_at, *id, worker.definitions[at]))
        };
        let known = self.workers.iter().filter_map(of_worker);
        known
            .filter(|(.., definition)| !refused.contains(definition))
            .filter(|(.., definition)| only.is_none_or(|only| only == *definition))
            .max()
            .map(|(.., definition)| definition)
    }

    /// Marks the topology as changed: claims with the former one take nothing.
    pub(super) fn raise_topology(&mut self) {
        for worker in self.workers.values_mut() {
            worker.topology += 1;
        }
    }

    /// Applies the start or end of a worker of these handlers. Claims with the former topology take nothing, and
    /// reserved or stuck runs of these handlers have another chance.
    pub(super) fn change_topology(&mut self, handlers: &[String]) {
        self.raise_topology();
        let reserved: Vec<RowKey> = self
            .reserved
            .iter()
            .filter(|(handler, _)| handlers.iter().any(|own| **own == **handler))
            .map(|(_, run)| *run)
            .collect();
        for run in reserved {
            self.change(run, |row| (row.reserved_for, row.refused_by) = (0, vec![]));
        }
        let stuck = self.stuck.iter().filter_map(|(_, id, root)| self.row((*root, *id)));
        let stuck = stuck.filter(|row| row.unknown_attempts < UNKNOWN_MAX);
        let stuck = stuck.filter(|row| handlers.iter().any(|own| **own == *row.handler));
        let stuck: Vec<RowKey> = stuck.map(|row| (row.root(), row.id())).collect();
        let now = self.now();
        for run in stuck {
            self.change(run, |row| {
                row.retry(now);
                (row.reason, row.reserved_for, row.refused_by) = (None, 0, vec![]);
            });
        }
        for handler in handlers {
            self.mark_unawaited(handler);
        }
    }

    /// Marks runs of this handler as stuck that wait for a signal which no living definition of it awaits any more; see
    /// `run_mark_unawaited.sql`.
    pub(super) fn mark_unawaited(&mut self, handler: &str) {
        let living = self.workers.values().flat_map(|worker| worker.handlers.iter().zip(&worker.definitions));
        let living: Vec<_> = living.filter(|(own, _)| **own == *handler).map(|(_, number)| *number).collect();
        if living.is_empty() {
            return;
        }
        let (mut awaited, mut removed) = (BTreeSet::new(), BTreeSet::new());
        for (number, definition) in (1..).zip(&self.definitions).filter(|(_, it)| it.handler == handler) {
            let signals = definition.steps.iter().filter_map(|step| step.step.awaits.clone());
            if living.contains(&number) { awaited.extend(signals) } else { removed.extend(signals) }
        }
        let now = self.now();
        let waiting = self
            .awaiting
            .iter()
            .filter(|(signal, _)| removed.contains(&signal.name) && !awaited.contains(&signal.name));
        let waiting: Vec<RowKey> = waiting.flat_map(|(_, runs)| runs.iter().copied()).collect();
        for run in waiting {
            let waits = |row: &WorkingRow| *row.handler == *handler && !row.giving_up && row.ready_at > now;
            if !self.row(run).is_some_and(waits) {
                continue;
            }
            self.change(run, |row| {
                let key = row.signal.as_ref();
                let reason = format!(
                    "the run waits for the signal `{}` with the key `{}`, which no step of saga `{handler}` awaits any more; \
                     let a step await it again, or cancel the run and then retry it, so that it rolls back",
                    key.map_or("", |key| &key.name),
                    key.map_or("", |key| &key.key),
                );
                (row.state, row.reason) = (RowState::Stuck, Some(reason));
                (row.parked_since, row.ready_at) = (Some(row.ready_at), now);
            });
            self.send_stuck(run);
        }
    }
}
