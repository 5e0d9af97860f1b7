//! Entities: decisions about them, and their states; see `entity_*.sql`.

use std::collections::BTreeMap;
use std::ops::Bound;

use scoop_core::{EventKind, Lineage};
use serde_json::Value;
use uuid::Uuid;

use super::MemoryStore;
use super::state::{Hierarchy, State};
use crate::bug::{Bug, is_injected};
use crate::completion::RunEnd;
use crate::store::entity::{
    Decisions, DecisionsSettled, EntityAtHand, FoldedState, NewEntityEvent, Refolded, StoredEntity,
    StoredEntityEvent,
};
use crate::store::{EntityId, EntityStorage, SettleResult, Settlement};

/// A row of `entity`, with its rows of `entity_event`, of which the first has version 1.
#[derive(Default)]
pub(super) struct EntityRow {
    now: StoredEntity,
    events: Vec<StoredEntityEvent>,
}

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
            if !void.is_empty() && !is_injected(Bug::StoreVoidDecisions) {
                return Ok(DecisionsSettled::Void(void));
            }
            let settled: BTreeMap<(Uuid, i64), SettleResult> = state.settle_all(identifier, &settlements)?;
            let now = state.now();
            for (id, entity) in changes {
                state.entities.entry(id).or_default().now = entity;
            }
            let kept = events.len() - usize::from(is_injected(Bug::ForgetEntityEvent) && events.len() > 1);
            for NewEntityEvent { entity, version, message, run } in events.into_iter().take(kept) {
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

    async fn entity_keys(&self, name: &'static str, after: &str, limit: u32) -> sqlx::Result<Vec<String>> {
        self.run("entity_keys", |state| {
            let after = EntityId { name, key: after.to_owned() };
            let later = state.entities.range((Bound::Excluded(after), Bound::Unbounded));
            let entities = later
                .take_while(|(id, _)| id.name == name)
                .filter(|(_, row)| row.now.version > 0 || !row.events.is_empty());
            Ok(entities.map(|(id, _)| id.key.clone()).take(limit as usize).collect())
        })
        .await
    }

    async fn entity_events(
        &self,
        entity: &EntityId,
        after: i64,
        limit: u32,
    ) -> sqlx::Result<Vec<StoredEntityEvent>> {
        self.run("entity_events", |state| Ok(events_after(state, entity, after, limit))).await
    }

    async fn refold_entity(
        &self,
        entity: &EntityId,
        after: i64,
        limit: u32,
        fold: impl FnOnce(Vec<StoredEntityEvent>) -> FoldedState,
    ) -> sqlx::Result<Refolded> {
        self.run("refold_entity", |state| {
            let stored = state.entities.get(entity).map(|row| row.now.clone()).unwrap_or_default();
            if stored.version == 0 && after == 0 {
                return Ok(Refolded::Written { changed: false, events: 0 });
            }
            let events = events_after(state, entity, after, limit.saturating_add(1));
            if events.len() > limit as usize {
                return Ok(Refolded::Behind);
            }
            let count = events.len() as u64;
            let folded = fold(events);
            if let Some(refolded) = Refolded::new(&stored, &folded, count) {
                return Ok(refolded);
            }
            if let Ok((version, folded)) = folded {
                let row = state.entities.entry(entity.clone()).or_default();
                row.now = StoredEntity { version, state: Some(folded) };
            }
            Ok(Refolded::Written { changed: true, events: count })
        })
        .await
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

impl State {
    pub(super) fn is_entity_event(&self, message: Uuid) -> bool {
        self.entity_event_ids.contains(&message)
    }
}

fn events_after(state: &State, entity: &EntityId, after: i64, limit: u32) -> Vec<StoredEntityEvent> {
    let events = state.entities.get(entity).map(|row| &*row.events).unwrap_or_default();
    let first = events.partition_point(|event| event.version <= after);
    events.iter().skip(first).take(limit as usize).cloned().collect()
}

#[cfg(feature = "simulation")]
impl MemoryStore {
    /// All events of entities, by entity, and in the order in which they were written.
    pub(crate) fn all_entity_events(&self) -> Vec<crate::simulation::EntityEvent> {
        let state = self.lock();
        let events =
            state.entities.iter().flat_map(|(id, row)| row.events.iter().map(move |event| (id, event)));
        let logged = events.map(|(id, stored)| {
            let event = stored.event.clone();
            let (topic, payload) =
                event.map_or_else(Default::default, |(topic, payload)| (Some(topic), payload));
            crate::simulation::EntityEvent {
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
