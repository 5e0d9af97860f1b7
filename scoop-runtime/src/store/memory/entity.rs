//! Entities: decisions about them, and their states; see `entity_*.sql`.

use std::collections::BTreeMap;

use scoop_core::{EventKind, Lineage};
use serde_json::Value;
use uuid::Uuid;

use super::MemoryStore;
use super::state::{Hierarchy, State};
use crate::completion::RunEnd;
use crate::model::entity::StoredEntityEvent;
use crate::store::entity::{Decisions, DecisionsSettled, EntityAtHand, NewEntityEvent, StoredEntity};
use crate::store::{EntityId, EntityStorage, SettleResult, Settlement};

impl EntityStorage for MemoryStore {
    async fn decide(
        &self,
        identifier: &str,
        entities: &[EntityId],
        decide: impl FnOnce(Vec<EntityAtHand>) -> Decisions,
    ) -> sqlx::Result<DecisionsSettled> {
        self.run("decide", |state| {
            let stored = entities.iter().map(|id| state.entities.get(id).map(|row| row.now.clone()));
            let Decisions { settlements, changes, events } =
                decide(stored.map(|it| EntityAtHand::Locked(it.unwrap_or_default())).collect());
            let void = settlements.iter().filter(|settlement| !state.admits(settlement));
            let void: Vec<_> = void.map(Settlement::id).collect();
            if !void.is_empty() {
                return Ok(DecisionsSettled::Void(void));
            }
            let settled: BTreeMap<(Uuid, i64), SettleResult> = state.settle_all(identifier, &settlements)?;
            let now = state.now();
            for (id, entity) in changes {
                state.entities.entry(id).or_default().now = entity;
            }
            for NewEntityEvent { entity, version, message, run } in events {
                state.entity_event_ids.insert(message);
                let launched = state.hierarchy_of(message).and_then(|it| it.record.messages.get(&message));
                // A copy, since finished hierarchies can be pruned.
                let event = launched.map(|launched| (launched.topic.to_string(), launched.payload.clone()));
                let event = StoredEntityEvent { version, at: now, message, run, event };
                state.entities.entry(entity).or_default().events.push(event);
            }
            for settlement in &settlements {
                state.completions.notify(settlement.lock_order().0, RunEnd::Unknown);
            }
            Ok(DecisionsSettled::All(settled))
        })
        .await
    }

    async fn entity(&self, entity: &EntityId) -> sqlx::Result<Option<StoredEntity>> {
        self.run("entity", |state| Ok(state.entities.get(entity).map(|row| row.now.clone()))).await
    }

    async fn entity_events(
        &self,
        entity: &EntityId,
        after: i64,
        limit: u32,
    ) -> sqlx::Result<Vec<StoredEntityEvent>> {
        self.run("entity_events", |state| Ok(events_after(state, entity, after, limit))).await
    }

    async fn command_decision(
        &self,
        message: Uuid,
        name: &str,
        run: Option<Uuid>,
    ) -> sqlx::Result<Option<Value>> {
        self.run("command_decision", |state| {
            let Some(hierarchy) = state.hierarchy_of(message) else { return Ok(None) };
            Ok(hierarchy.decision(message, name, run).cloned())
        })
        .await
    }
}

impl Hierarchy {
    /// The decision of a command: a reply of this name by its run.
    pub(super) fn decision(&self, message: Uuid, name: &str, run: Option<Uuid>) -> Option<&Value> {
        let runs = self.record.of_message(message, EventKind::Seen).map(|seen| Lineage::id(&seen.lineage));
        let mut runs = runs.filter(|id| run.is_none_or(|run| run == *id));
        runs.find_map(|run| self.record.values.get(&run)?.get(name))
    }
}

impl State {}

fn events_after(state: &State, entity: &EntityId, after: i64, limit: u32) -> Vec<StoredEntityEvent> {
    let events = state.entities.get(entity).map(|row| &*row.events).unwrap_or_default();
    let first = events.partition_point(|event| event.version <= after);
    events.iter().skip(first).take(limit as usize).cloned().collect()
}

#[cfg(feature = "simulation")]
impl MemoryStore {
    /// All events of entities, by entity, and in the order in which they were written.
    pub(crate) fn all_entity_events(&self) -> Vec<super::contents::EntityEvent> {
        let state = self.lock();
        let events =
            state.entities.iter().flat_map(|(id, row)| row.events.iter().map(move |event| (id, event)));
        let logged = events.map(|(id, stored)| {
            let event = stored.event.clone();
            let (topic, payload) =
                event.map_or_else(Default::default, |(topic, payload)| (Some(topic), payload));
            super::contents::EntityEvent {
                entity: id.name,
                key: id.key.clone(),
                version: stored.version,
                message_id: stored.message,
                topic,
                payload,
                run: stored.run,
            }
        });
        logged.collect()
    }
}
