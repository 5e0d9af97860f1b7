//! Entities: decisions about them, and their states; see `entity_*.sql`.

use std::collections::BTreeMap;

use scoop_core::{EventKind, Lineage};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::state::State;
use crate::bug::{Bug, is_injected};
use crate::completion::RunEnd;
use crate::store::entity::{Decisions, DecisionsSettled, NewEntityEvent, StoredEntity};
use crate::store::{EntityId, EntityStorage, SettleResult, Settlement};

/// A row of `entity`, with its rows of `entity_event`, of which the first has version 1.
#[derive(Default)]
pub(super) struct EntityRow {
    now: StoredEntity,
    events: Vec<(NewEntityEvent, OffsetDateTime)>,
}

impl EntityStorage for MemoryStore {
    async fn decide(
        &self,
        identifier: &str,
        entities: &[EntityId],
        decide: impl FnOnce(Vec<StoredEntity>) -> Decisions,
    ) -> sqlx::Result<DecisionsSettled> {
        self.run("decide", |state| {
            let stored = entities.iter().map(|id| state.entities.get(id).map(|row| row.now.clone()));
            let Decisions { settlements, changes, events } =
                decide(stored.map(Option::unwrap_or_default).collect());
            let void = settlements.iter().filter(|settlement| !state.admits(settlement));
            let void: Vec<_> = void.map(Settlement::id).collect();
            if !void.is_empty() && !is_injected(Bug::KeepVoidDecisions) {
                return Ok(DecisionsSettled::Void(void));
            }
            let settled: BTreeMap<(Uuid, i64), SettleResult> = state.settle_all(identifier, &settlements)?;
            let now = state.now();
            for (id, entity) in changes {
                state.entities.entry(id).or_default().now = entity;
            }
            let kept = events.len() - usize::from(is_injected(Bug::ForgetEntityEvent) && events.len() > 1);
            for event in events.into_iter().take(kept) {
                state.entity_event_ids.insert(event.message);
                state.entities.entry(event.entity.clone()).or_default().events.push((event, now));
            }
            for settlement in &settlements {
                state.completions.notify(settlement.place().0, RunEnd::Unknown);
            }
            Ok(DecisionsSettled::All(settled))
        })
        .await
    }

    async fn entity(&self, entity: &EntityId) -> sqlx::Result<Option<StoredEntity>> {
        self.run("entity", |state| Ok(state.entities.get(entity).map(|row| row.now.clone()))).await
    }

    async fn command_decision(
        &self,
        message: Uuid,
        name: &str,
        run: Option<Uuid>,
    ) -> sqlx::Result<Option<Value>> {
        self.run("command_decision", |state| {
            let Some(hierarchy) = state.hierarchy_of(message) else { return Ok(None) };
            let seen = hierarchy.record.of_message(message, EventKind::Seen);
            let runs = seen.map(|seen| Lineage::id(&seen.lineage));
            let runs: Vec<_> = runs.filter(|id| run.is_none_or(|run| run == *id)).collect();
            let values = runs.iter().filter_map(|run| hierarchy.record.values.get(run));
            Ok(values.filter_map(|values| values.get(name)).next().cloned())
        })
        .await
    }
}

impl State {
    /// Whether a message is an event of an entity.
    pub(super) fn is_entity_event(&self, message: Uuid) -> bool {
        self.entity_event_ids.contains(&message)
    }
}

#[cfg(feature = "simulation")]
impl MemoryStore {
    /// All events of entities, by entity, and in the order in which they were written.
    pub(crate) fn entity_events(&self) -> Vec<crate::simulation::EntityEvent> {
        let state = self.lock();
        let message = |id| {
            let mut hierarchies = state.hierarchies.values();
            let current = hierarchies.find_map(|hierarchy| hierarchy.record.messages.get(&id));
            current.or_else(|| state.entity_messages.get(&id))
        };
        let events = state.entities.values().flat_map(|row| &row.events);
        let logged = events.map(|(event, _)| {
            let written = message(event.message);
            crate::simulation::EntityEvent {
                entity: event.entity.name,
                key: event.entity.key.clone(),
                version: event.version,
                message_id: event.message,
                topic: written.map(|written| written.topic.to_string()),
                payload: written.map(|written| written.payload.clone()).unwrap_or_default(),
                run: event.run,
            }
        });
        logged.collect()
    }
}
