//! Entities: decisions about them in one transaction, see `entity_*.sql`, and their states.

use std::collections::BTreeMap;

use sqlx::types::Json;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use uuid::Uuid;

use super::PostgresStore;
use super::query_ext::FetchExt;
use crate::store::entity::{Decisions, DecisionsSettled, StoredEntity};
use crate::store::{EntityId, EntityStorage, SettlePath, SettleResult, Settlement};
use crate::util::patience::note;

impl EntityStorage for PostgresStore {
    async fn decide(
        &self,
        identifier: &str,
        entities: &[EntityId],
        decide: impl FnOnce(Vec<StoredEntity>) -> Decisions,
    ) -> sqlx::Result<DecisionsSettled> {
        let (mut tx, stored) = loop {
            let mut tx = self.sessions.begin().await?;
            match self.lock_entities(&mut tx, entities).await? {
                Some(stored) => break (tx, stored),
                None => tx.rollback().await?,
            }
        };
        let Decisions { settlements, changes, events } = decide(stored);
        let ids: Vec<_> = settlements.iter().map(Settlement::id).collect();
        let settled = self.settle_in(&mut tx, identifier, settlements).await?;
        let void: Vec<_> = ids.into_iter().filter(|id| !settled.contains_key(id)).collect();
        if !void.is_empty() {
            tx.rollback().await?;
            return Ok(DecisionsSettled::Void(void));
        }
        if !changes.is_empty() {
            let write = sqlx::query(self.sql.entity_write.clone())
                .bind(changes.iter().map(|(id, _)| id.name).collect::<Vec<_>>())
                .bind(changes.iter().map(|(id, _)| &*id.key).collect::<Vec<_>>())
                .bind(changes.iter().map(|(_, entity)| entity.version).collect::<Vec<_>>())
                .bind(changes.iter().map(|(_, entity)| entity.state.as_ref().map(Json)).collect::<Vec<_>>())
                .bind(events.iter().map(|event| event.entity.name).collect::<Vec<_>>())
                .bind(events.iter().map(|event| &*event.entity.key).collect::<Vec<_>>())
                .bind(events.iter().map(|event| event.version).collect::<Vec<_>>())
                .bind(events.iter().map(|event| event.message).collect::<Vec<_>>())
                .bind(events.iter().map(|event| event.run).collect::<Vec<_>>());
            write.execute(&mut *tx).await?;
        }
        tx.commit().await.inspect_err(note)?;
        Ok(DecisionsSettled::All(settled))
    }

    async fn entity(&self, entity: &EntityId) -> sqlx::Result<Option<StoredEntity>> {
        let read = sqlx::query(self.sql.entity_read.clone()).bind(entity.name).bind(entity.key.clone());
        let row = read.first(&self.sessions).await?;
        row.map(|row| Ok(StoredEntity { version: row.try_get("version")?, state: row.try_get("state")? }))
            .transpose()
    }

    async fn command_decision(
        &self,
        message: Uuid,
        name: &str,
        run: Option<Uuid>,
    ) -> sqlx::Result<Option<serde_json::Value>> {
        let read = sqlx::query_scalar(self.sql.command_decision.clone()).bind(message).bind(name).bind(run);
        read.first(&self.sessions).await
    }
}

impl PostgresStore {
    /// Locks the rows of entities, which are in their order, and makes those that are missing. None if another
    /// transaction has made one of these: then it has to be locked in its turn.
    ///
    /// A transaction that makes rows waits only for others that do, and in the order of the rows. So two of them never
    /// wait for each other.
    async fn lock_entities(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        entities: &[EntityId],
    ) -> sqlx::Result<Option<Vec<StoredEntity>>> {
        let pairs = |entities: &[&EntityId]| -> (Vec<&'static str>, Vec<String>) {
            entities.iter().map(|id| (id.name, id.key.clone())).unzip()
        };
        let (names, keys) = pairs(&entities.iter().collect::<Vec<_>>());
        let rows =
            sqlx::query(self.sql.entity_lock.clone()).bind(names).bind(keys).fetch_all(&mut **tx).await?;
        let mut stored: Vec<Option<StoredEntity>> = vec![None; entities.len()];
        for row in rows {
            let nth: i64 = row.try_get("nth")?;
            let place = usize::try_from(nth - 1).ok().and_then(|at| stored.get_mut(at));
            let entity = StoredEntity { version: row.try_get("version")?, state: row.try_get("state")? };
            if let Some(place) = place {
                *place = Some(entity);
            }
        }
        let missing: Vec<_> =
            entities.iter().zip(&stored).filter(|(_, it)| it.is_none()).map(|(id, _)| id).collect();
        if !missing.is_empty() {
            let (names, keys) = pairs(&missing);
            let insert = sqlx::query(self.sql.entity_insert.clone()).bind(names).bind(keys);
            let inserted = insert.execute(&mut **tx).await?.rows_affected();
            if inserted < missing.len() as u64 {
                return Ok(None);
            }
        }
        Ok(Some(stored.into_iter().map(Option::unwrap_or_default).collect()))
    }

    /// Applies settlements in a transaction of the engine: those of each path by one statement.
    async fn settle_in(
        &self,
        connection: &mut PgConnection,
        identifier: &str,
        settlements: Vec<Settlement>,
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), SettleResult>> {
        let mut by_path: [Vec<Settlement>; 3] = Default::default();
        for settlement in settlements {
            let place = match settlement.path() {
                SettlePath::Advance => 0,
                SettlePath::LaunchChildren => 1,
                SettlePath::RequestRollback | SettlePath::General => 2,
            };
            by_path[place].push(settlement);
        }
        let mut settled = BTreeMap::new();
        for mut settlements in by_path.into_iter().filter(|settlements| !settlements.is_empty()) {
            // In the order in which a cancellation locks the runs of a hierarchy.
            settlements.sort_unstable_by_key(Settlement::place);
            for bulky in settlements.iter().filter(|settlement| settlement.is_bulky()) {
                self.store_messages(connection, bulky, None).await?;
            }
            let part = self.settle_on(connection, identifier, &settlements).await?;
            let applied = settlements.iter().filter(|settlement| part.contains_key(&settlement.id()));
            for settlement in applied.filter(|settlement| settlement.requires_handlers()) {
                self.check_handlers(connection, settlement).await?;
            }
            settled.extend(part);
        }
        Ok(settled)
    }
}
