//! Messages, values and entities, for operators; see `run_contents.sql` and `entity_*.sql`.

use std::collections::BTreeSet;

use scoop_core::EventKind;

use super::MemoryStore;
use super::state::State;
use crate::find::{ContentsKey, EntityEventRow, EntityRow, StoredContent, StoredContents};
use crate::store::entity::{StoredEntity, StoredEntityEvent};
use crate::store::{ContentStorage, EntityId, EntityStorage as _};

impl ContentStorage for MemoryStore {
    async fn redacted_fields(&self) -> sqlx::Result<BTreeSet<String>> {
        self.run("redacted_fields", |state| Ok(state.redacted_fields.clone())).await
    }

    async fn run_contents(
        &self,
        runs: &[ContentsKey],
        values_max: usize,
    ) -> sqlx::Result<Vec<StoredContents>> {
        let read = |state: &State| runs.iter().map(|run| state.run_contents(run, values_max)).collect();
        self.run("run_contents", |state| Ok(read(state))).await
    }

    async fn entity_names(&self, limit: u32) -> sqlx::Result<Vec<String>> {
        self.run("entity_names", |state| {
            let names: BTreeSet<_> = state.entities.keys().map(|id| id.name).collect();
            Ok(names.into_iter().take(limit as usize).map(str::to_owned).collect())
        })
        .await
    }

    async fn named_entity_keys(&self, name: &str, after: &str, limit: u32) -> sqlx::Result<Vec<String>> {
        match self.name_of_type(name) {
            Some(name) => self.entity_keys(name, after, limit).await,
            None => Ok(vec![]),
        }
    }

    async fn entity_row(&self, name: &str, key: &str) -> sqlx::Result<Option<EntityRow>> {
        let Some(name) = self.name_of_type(name) else { return Ok(None) };
        let entity = self.entity(&EntityId { name, key: key.to_owned() }).await?;
        Ok(entity.map(|StoredEntity { version, state }| EntityRow {
            version,
            state: state.map(StoredContent::of),
        }))
    }

    async fn entity_event_rows(
        &self,
        name: &str,
        key: &str,
        after: i64,
        limit: u32,
    ) -> sqlx::Result<Vec<EntityEventRow>> {
        let Some(name) = self.name_of_type(name) else { return Ok(vec![]) };
        let events = self.entity_events(&EntityId { name, key: key.to_owned() }, after, limit).await?;
        let row = |StoredEntityEvent { version, at, message, run, event }| {
            let (topic, payload) = event.unzip();
            EntityEventRow { version, at, message, run, topic, payload: payload.map(StoredContent::of) }
        };
        Ok(events.into_iter().map(row).collect())
    }
}

impl MemoryStore {
    /// The name as a type of this program has it.
    fn name_of_type(&self, name: &str) -> Option<&'static str> {
        self.at_once(|state| state.entities.keys().map(|id| id.name).find(|known| *known == name))
    }
}

impl State {
    fn run_contents(&self, of: &ContentsKey, values_max: usize) -> StoredContents {
        let ContentsKey { run, message, .. } = *of;
        let Some(hierarchy) = self.hierarchy_of(run) else { return StoredContents::default() };
        let record = &hierarchy.record;
        let begins = record.start_of(run).and_then(|start| start.begins.as_ref());
        let message = begins.map_or(message, |execution| execution.message);
        let newest =
            record.of_run(run).next_back().filter(|event| event.kind != EventKind::CancellationRequested);
        let context = newest.and_then(|event| serde_json::to_value(&event.context).ok());
        let values = record.values.get(&run).into_iter().flatten().take(values_max);
        StoredContents {
            message: record.messages.get(&message).map(|message| StoredContent::of(message.payload.clone())),
            context: context.map(StoredContent::of),
            values: values.map(|(name, value)| (name.clone(), StoredContent::of(value.clone()))).collect(),
        }
    }
}
