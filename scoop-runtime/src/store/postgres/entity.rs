//! Entities: decisions about them in one transaction, see `entity_*.sql`, and their states.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use uuid::Uuid;

use super::query_ext::FetchExt;
use super::{PostgresStore, decode};
use crate::model::entity::StoredEntityEvent;
use crate::store::entity::{Decisions, DecisionsSettled, EntityAtHand, NewEntityEvent, StoredEntity};
use crate::store::{EntityId, EntityStorage, SettlePath, SettleResult, Settlement};
use crate::util::retries::note;

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
            self.write_entities(&mut tx, &changes, &events).await?;
        }
        tx.commit().await.inspect_err(note)?;
        Ok(DecisionsSettled::All(settled))
    }

    async fn entity(&self, entity: &EntityId) -> sqlx::Result<Option<StoredEntity>> {
        let row = self.entity_query(entity.name, &entity.key).first(&self.sessions).await?;
        let read = |row: PgRow| -> sqlx::Result<_> {
            Ok(StoredEntity { version: row.try_get("version")?, state: row.try_get("state")? })
        };
        row.map(read).transpose()
    }

    async fn entity_events(
        &self,
        entity: &EntityId,
        after: i64,
        limit: u32,
    ) -> sqlx::Result<Vec<StoredEntityEvent>> {
        let events = self.events_query(entity.name, &entity.key, after, limit);
        events.all(&self.sessions).await?.iter().map(StoredEntityEvent::from_row).collect()
    }

    async fn command_decision(
        &self,
        message: Uuid,
        name: &str,
        run: Option<Uuid>,
    ) -> sqlx::Result<Option<serde_json::Value>> {
        let read =
            sqlx::query_scalar(self.sql.command_read_decision.clone()).bind(message).bind(name).bind(run);
        read.first(&self.sessions).await
    }
}

impl StoredEntityEvent {
    /// Decodes a row of `entity_events.sql`.
    pub fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let (topic, payload): (Option<String>, Option<serde_json::Value>) =
            (row.try_get("topic")?, row.try_get("payload")?);
        Ok(Self {
            version: row.try_get("version")?,
            at: decode::time(row, "at")?,
            message: row.try_get("message_id")?,
            run: row.try_get("run")?,
            event: topic.zip(payload),
        })
    }
}

impl PostgresStore {
    /// Locks an entity in a transaction of the user, inserts its row if it is missing, and returns its version.
    pub(crate) async fn lock_entity(
        &self,
        connection: &mut PgConnection,
        entity: &EntityId,
    ) -> sqlx::Result<i64> {
        let lock = sqlx::query_scalar(self.sql.entity_lock_in_step.clone());
        let lock = lock.bind(entity.name).bind(entity.key.clone());
        if let Some(version) = lock.first_on(connection).await? {
            return Ok(version);
        }
        let insert = sqlx::query_scalar(self.sql.entity_insert_in_step.clone());
        insert.bind(entity.name).bind(entity.key.clone()).one_on(connection).await
    }

    /// Writes the version of an entity that is locked in this transaction of the user, and its new events.
    pub(crate) async fn write_entity(
        &self,
        connection: &mut PgConnection,
        entity: &EntityId,
        version: i64,
        events: &[NewEntityEvent],
    ) -> sqlx::Result<()> {
        let write = sqlx::query(self.sql.entity_write_in_step.clone())
            .bind(entity.name)
            .bind(&*entity.key)
            .bind(version)
            .bind(events.iter().map(|event| event.version).collect::<Vec<_>>())
            .bind(events.iter().map(|event| event.message).collect::<Vec<_>>())
            .bind(events.iter().map(|event| event.run).collect::<Vec<_>>());
        write.execute(connection).await.map(drop)
    }

    /// Reads the keys of entities of a name, after this one.
    pub fn keys_query(&self, name: &str, after: &str, limit: u32) -> Query<'static, Postgres, PgArguments> {
        let read = sqlx::query(self.sql.entity_keys.clone());
        read.bind(name.to_owned()).bind(after.to_owned()).bind(i64::from(limit))
    }

    /// Reads an entity.
    pub fn entity_query(&self, name: &str, key: &str) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(self.sql.entity_read.clone()).bind(name.to_owned()).bind(key.to_owned())
    }

    /// Reads events of an entity, after this version.
    pub fn events_query(
        &self,
        name: &str,
        key: &str,
        after: i64,
        limit: u32,
    ) -> Query<'static, Postgres, PgArguments> {
        let read = sqlx::query(self.sql.entity_events.clone());
        read.bind(name.to_owned()).bind(key.to_owned()).bind(after).bind(i64::from(limit))
    }

    /// Writes new states of entities, whose rows the transaction holds, and the events that led to them.
    pub async fn write_entities(
        &self,
        tx: &mut PgConnection,
        changes: &[(EntityId, StoredEntity)],
        events: &[NewEntityEvent],
    ) -> sqlx::Result<()> {
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
        write.execute(tx).await.map(drop)
    }

    /// Makes the rows of entities without an event, in their order, and returns which. Those that another transaction has made
    /// meanwhile are not among them.
    pub async fn insert_entities(
        &self,
        tx: &mut PgConnection,
        names: Vec<&'static str>,
        keys: Vec<String>,
    ) -> sqlx::Result<Vec<(String, String)>> {
        sqlx::query_as(self.sql.entity_insert.clone()).bind(names).bind(keys).fetch_all(tx).await
    }

    /// Locks the rows of those entities that are free, and makes the missing ones. The entities are in their order.
    ///
    /// A transaction that makes rows waits only for others that do, and in the order of the rows. So two of them never
    /// wait for each other.
    async fn lock_entities(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        entities: &[EntityId],
    ) -> sqlx::Result<Vec<EntityAtHand>> {
        let columns = |entities: &[&EntityId]| -> (Vec<&'static str>, Vec<String>) {
            entities.iter().map(|id| (id.name, id.key.clone())).unzip()
        };
        let (names, keys) = columns(&entities.iter().collect::<Vec<_>>());
        let lock = sqlx::query(self.sql.entity_lock_free.clone()).bind(names).bind(keys);
        let rows = lock.fetch_all(&mut **tx).await?;
        let (mut at_hand, mut missing) = (vec![EntityAtHand::Busy; entities.len()], vec![]);
        for row in rows {
            let nth: i64 = row.try_get("nth")?;
            let nth = usize::try_from(nth - 1).ok().filter(|nth| *nth < entities.len());
            let nth = nth.ok_or_else(|| sqlx::Error::Protocol("an unknown entity was locked".into()))?;
            let version: Option<i64> = row.try_get("version")?;
            match version {
                Some(version) => {
                    at_hand[nth] = match row.try_get("state") {
                        Ok(state) => EntityAtHand::Locked(StoredEntity { version, state }),
                        Err(error) => EntityAtHand::Unreadable(error.to_string()),
                    }
                }
                None if row.try_get("is_locked")? => {}
                None => missing.push(nth),
            }
        }
        missing.sort_unstable();
        if !missing.is_empty() {
            let (names, keys) = columns(&missing.iter().map(|nth| &entities[*nth]).collect::<Vec<_>>());
            let inserted = self.insert_entities(tx, names, keys).await?;
            let inserted: BTreeSet<_> = inserted.iter().map(|(name, key)| (&**name, &**key)).collect();
            // The others were made by another transaction meanwhile.
            for nth in missing {
                if inserted.contains(&(entities[nth].name, &*entities[nth].key)) {
                    at_hand[nth] = EntityAtHand::Locked(StoredEntity::default());
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
            let nth = match settlement.path() {
                SettlePath::Advance => 0,
                SettlePath::LaunchChildren => 1,
                SettlePath::RequestRollback | SettlePath::General => 2,
            };
            by_path[nth].push(settlement);
        }
        let mut settled = BTreeMap::new();
        for mut settlements in by_path.into_iter().filter(|settlements| !settlements.is_empty()) {
            // In the order in which a cancellation locks the runs of a hierarchy.
            settlements.sort_unstable_by_key(Settlement::lock_order);
            for bulky in settlements.iter().filter(|settlement| settlement.is_bulky()) {
                self.store_messages(connection, bulky, None).await?;
            }
            let part = self.settle_on(connection, identifier, &settlements).await?;
            let applied = settlements.iter().filter(|settlement| part.contains_key(&settlement.id()));
            self.record_found_by_of(connection, applied.clone()).await?;
            for settlement in applied.filter(|settlement| settlement.requires_handlers()) {
                self.check_handlers(connection, settlement).await?;
            }
            settled.extend(part);
        }
        Ok(settled)
    }
}
