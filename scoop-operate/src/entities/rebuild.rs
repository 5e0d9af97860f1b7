//! Rebuilds the states of entities from their events, after their applications have changed.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Entity, EntityKey as _, EntityType, Escaped};
use scoop_runtime::internal::{
    EntityId, FetchExt as _, StoredEntity, StoredEntityEvent, commit, possible_key,
};
use sqlx::Row as _;

use super::fold::{EntityFold, FoldedState, Refolded, Unfolded};
use crate::database::Database;
use crate::error::ErrorKind;
use crate::statements::ENTITY_LOCK;
use crate::{Operate, OperateError};

/// The number of events that are read at a time, and of those that are applied at most while the entity is locked.
const EVENTS_MAX: u32 = 100;

/// The number of keys that are read at a time.
const KEYS_MAX: u32 = 100;

/// The number of failures that are kept in an error.
const FAILURES_MAX: usize = 100;

/// The result of `operate().entities().rebuild`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuiltEntities {
    /// The number of entities that are rebuilt.
    pub entities: u64,
    /// The number of those whose state is another one than before.
    pub changed: u64,
    /// The number of their events.
    pub events: u64,
    /// The last key, if the [limit](RebuildEntities::limit) was reached: there may be more
    /// [after](RebuildEntities::after) it.
    pub last_key: Option<String>,
}

/// An entity that cannot be rebuilt. Its state is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntityNotRebuilt {
    /// The key.
    pub key: String,
    /// The version of the event at fault, or after which the state is.
    pub version: u64,
    /// The reason, with the topic of the event.
    pub why: String,
}

impl fmt::Display for EntityNotRebuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key `{}`, version {}: {}", Escaped(&self.key), self.version, Escaped(&self.why))
    }
}

/// A rebuild of entities. Await it.
#[must_use = "nothing is rebuilt before this is awaited"]
pub struct RebuildEntities<E> {
    operate: Operate,
    key: Option<String>,
    after: String,
    limit: Option<u64>,
    entity: PhantomData<fn() -> E>,
}

impl<E: Entity> RebuildEntities<E> {
    pub(super) fn new(operate: Operate) -> Self {
        const {
            assert!(
                !E::IN_TABLE,
                "the states of this entity are in a table of yours, so they are not rebuilt"
            );
        }
        Self { operate, key: None, after: String::new(), limit: None, entity: PhantomData }
    }

    /// Restricts it to the entity with this key.
    pub fn key(mut self, key: E::Key) -> Self {
        self.key = Some(key.to_key());
        self
    }

    /// Continues after this key: [`RebuiltEntities::last_key`] of the call before.
    pub fn after(mut self, key: impl Into<String>) -> Self {
        self.after = key.into();
        self
    }

    /// Sets the maximum number of entities; by default there is none.
    pub fn limit(mut self, entities: u64) -> Self {
        self.limit = Some(entities);
        self
    }
}

impl<E: Entity> IntoFuture for RebuildEntities<E> {
    type Output = Result<RebuiltEntities, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { operate, key, after, limit, .. } = self;
        let entity = EntityType::of::<E>();
        async move {
            let database = operate.required("a rebuild of entities")?;
            let report = RebuiltEntities::default();
            let rebuild = Rebuild { database, entity, report, failures: vec![], failed: 0 };
            match key {
                Some(key) => rebuild.one(key).await,
                None => rebuild.all(after, limit).await,
            }
        }
        .boxed()
    }
}

/// A rebuild under way.
struct Rebuild {
    database: Arc<Database>,
    entity: EntityType,
    report: RebuiltEntities,
    failures: Vec<EntityNotRebuilt>,
    failed: u64,
}

impl Rebuild {
    async fn one(mut self, key: String) -> Result<RebuiltEntities, OperateError> {
        let id = possible_key(EntityId { name: self.entity.name(), key })?;
        self.rebuild(id).await?;
        self.result()
    }

    async fn all(mut self, mut after: String, limit: Option<u64>) -> Result<RebuiltEntities, OperateError> {
        let name = self.entity.name();
        let mut left = limit.unwrap_or(u64::MAX);
        loop {
            let page = u32::try_from(left).unwrap_or(u32::MAX).min(KEYS_MAX);
            let keys = self
                .database
                .retrying("the entities were listed", |_| self.database.named_entity_keys(name, &after, page))
                .await?;
            let is_last = keys.len() < page as usize;
            for key in keys {
                self.rebuild(EntityId { name, key: key.clone() }).await?;
                (after, left) = (key, left - 1);
            }
            if is_last {
                return self.result();
            }
            if left == 0 {
                self.report.last_key = Some(after).filter(|key| !key.is_empty());
                return self.result();
            }
        }
    }

    fn result(self) -> Result<RebuiltEntities, OperateError> {
        let Self { entity, report, failures, failed, .. } = self;
        match failed {
            0 => Ok(report),
            failed => {
                let entity = entity.name();
                Err(ErrorKind::EntitiesNotRebuilt { entity, failed, failures, rebuilt: report }.into())
            }
        }
    }

    /// Rebuilds an entity, or notes why that is impossible.
    async fn rebuild(&mut self, id: EntityId) -> Result<(), OperateError> {
        let events = self.report.events;
        match self.fold(&id).await? {
            Ok(false) if self.report.events == events => {}
            Ok(changed) => {
                self.report.entities += 1;
                self.report.changed += u64::from(changed);
            }
            Err(Unfolded { version, why }) => {
                self.failed += 1;
                if self.failures.len() < FAILURES_MAX {
                    let version = u64::try_from(version).unwrap_or_default();
                    self.failures.push(EntityNotRebuilt { key: id.key, version, why });
                }
            }
        }
        Ok(())
    }

    /// Applies the events page by page, and the newest ones while the entity is locked. Returns whether its state has
    /// changed.
    async fn fold(&mut self, id: &EntityId) -> Result<Result<bool, Unfolded>, OperateError> {
        let database = &self.database;
        let bytes_max = database.payload_bytes_max;
        let mut fold = match EntityFold::new(self.entity) {
            Ok(fold) => fold,
            Err(unfolded) => return Ok(Err(unfolded)),
        };
        loop {
            loop {
                let page = database
                    .retrying("the events of an entity were looked up", |_| {
                        database.recorded(id, fold.version)
                    })
                    .await?;
                let is_last = page.len() < EVENTS_MAX as usize;
                self.report.events += page.len() as u64;
                if let Err(unfolded) = fold.apply(page) {
                    return Ok(Err(unfolded));
                }
                if is_last {
                    break;
                }
            }
            // As JSON, since an attempt may be repeated.
            let version = fold.version;
            let state = match version {
                0 => None,
                _ => match fold.written(bytes_max) {
                    Ok(state) => Some(state),
                    Err(unfolded) => return Ok(Err(unfolded)),
                },
            };
            let refolded = database.retrying("the state of an entity was rebuilt", |_| {
                database.refold(id, version, |events| {
                    let mut fold = EntityFold::resume(self.entity, state.as_ref(), version)?;
                    fold.apply(events)?;
                    Ok((fold.version, fold.written(bytes_max)?))
                })
            });
            match refolded.await? {
                Refolded::Written { changed, events } => {
                    self.report.events += events;
                    return Ok(Ok(changed));
                }
                Refolded::Failed(unfolded) => return Ok(Err(unfolded)),
                // Commands were faster.
                Refolded::Behind => {}
            }
        }
    }
}

impl Database {
    /// A page of the events of an entity after this version.
    async fn recorded(&self, id: &EntityId, after: i64) -> sqlx::Result<Vec<StoredEntityEvent>> {
        let events = self.events_query(id.name, &id.key, after, EVENTS_MAX).all(self.sessions()).await?;
        events.iter().map(StoredEntityEvent::from_row).collect()
    }

    /// Locks an entity, and writes its state after the events since this version, if these fit on a page.
    async fn refold(
        &self,
        entity: &EntityId,
        after: i64,
        fold: impl FnOnce(Vec<StoredEntityEvent>) -> FoldedState,
    ) -> sqlx::Result<Refolded> {
        let mut tx = self.sessions().begin().await?;
        let lock = || sqlx::query(self.text(ENTITY_LOCK)).bind(entity.name).bind(entity.key.clone());
        let mut row = lock().first_on(&mut tx).await?;
        if row.is_none() && after > 0 {
            // The row is lost: there are events.
            self.insert_entities(&mut tx, vec![entity.name], vec![entity.key.clone()]).await?;
            row = lock().first_on(&mut tx).await?;
        }
        let stored = match row {
            Some(row) => StoredEntity {
                version: row.try_get("version")?,
                // One that no program can read is replaced.
                state: row.try_get("state").unwrap_or_default(),
            },
            None => StoredEntity::default(),
        };
        if stored.version == 0 && after == 0 {
            tx.rollback().await?;
            return Ok(Refolded::Written { changed: false, events: 0 });
        }
        let events = self.events_query(entity.name, &entity.key, after, EVENTS_MAX + 1);
        let events = events.all_on(&mut tx).await?;
        if events.len() > EVENTS_MAX as usize {
            tx.rollback().await?;
            return Ok(Refolded::Behind);
        }
        let events: Vec<_> = events.iter().map(StoredEntityEvent::from_row).collect::<sqlx::Result<_>>()?;
        let count = events.len() as u64;
        let folded = fold(events);
        if let Some(refolded) = Refolded::new(&stored, &folded, count) {
            tx.rollback().await?;
            return Ok(refolded);
        }
        let refolded = folded.map(|(version, state)| StoredEntity { version, state: Some(state) });
        let refolded = refolded.unwrap_or(stored);
        self.write_entities(&mut tx, &[(entity.clone(), refolded)], &[]).await?;
        commit(tx).await?;
        Ok(Refolded::Written { changed: true, events: count })
    }
}
