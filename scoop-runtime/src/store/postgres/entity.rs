//! Entities: decisions about them in one transaction, see `entity_*.sql`, and their states.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::types::Json;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use uuid::Uuid;

use super::PostgresStore;
use super::query_ext::FetchExt;
use crate::store::entity::{Decisions, DecisionsSettled, EntityAtHand, StoredEntity};
use crate::store::{EntityId, EntityStorage, SettlePath, SettleResult, Settlement};
use crate::util::patience::note;

impl EntityStorage for PostgresStore {
    async fn decide(
        &self,
        identifier: &str,
        entities: &[EntityId],
        decide: impl FnOnce(Vec<EntityAtHand>) -> Decisions,
    ) -> sqlx::Result<DecisionsSettled> {
        let mut tx = self.sessions.begin().await?;
        let at_hand = self.lock_entities(&mut tx, entities).await?;
        let Decisions { settlements, changes, events } = decide(at_hand);
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
    /// Locks the rows of those entities that are free, and makes the missing ones. The entities are in their order.
    ///
    /// A transaction that makes rows waits only for others that do, and in the order of the rows. So two of them never
    /// wait for each other.
    async fn lock_entities(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        entities: &[EntityId],
    ) -> sqlx::Result<Vec<EntityAtHand>> {
        let pairs = |entities: &[&EntityId]| -> (Vec<&'static str>, Vec<String>) {
            entities.iter().map(|id| (id.name, id.key.clone())).unzip()
        };
        let (names, keys) = pairs(&entities.iter().collect::<Vec<_>>());
        let lock = sqlx::query(self.sql.entity_lock_free.clone()).bind(names).bind(keys);
        let rows = lock.fetch_all(&mut **tx).await?;
        let (mut at_hand, mut missing) = (vec![EntityAtHand::Busy; entities.len()], vec![]);
        for row in rows {
            let nth: i64 = row.try_get("nth")?;
            let place = usize::try_from(nth - 1).ok().filter(|place| *place < entities.len());
            let place = place.ok_or_else(|| sqlx::Error::Protocol("an unknown entity was locked".into()))?;
            let version: Option<i64> = row.try_get("version")?;
            match version {
                Some(version) => {
                    at_hand[place] = match row.try_get("state") {
                        Ok(state) => EntityAtHand::Locked(StoredEntity { version, state }),
                        Err(error) => EntityAtHand::Unreadable(error.to_string()),
                    }
                }
                None if row.try_get("is_locked")? => {}
                None => missing.push(place),
            }
        }
        missing.sort_unstable();
        if !missing.is_empty() {
            let (names, keys) = pairs(&missing.iter().map(|place| &entities[*place]).collect::<Vec<_>>());
            let insert = sqlx::query_as(self.sql.entity_insert.clone()).bind(names).bind(keys);
            let made: Vec<(String, String)> = insert.fetch_all(&mut **tx).await?;
            let made: BTreeSet<_> = made.iter().map(|(name, key)| (&**name, &**key)).collect();
            // The others were made by another transaction meanwhile.
            for place in missing {
                if made.contains(&(entities[place].name, &*entities[place].key)) {
                    at_hand[place] = EntityAtHand::Locked(StoredEntity::default());
                }
            }
        }
        Ok(at_hand)
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
