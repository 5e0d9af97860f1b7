//! Rebuilds the states of entities from their events, after their applications have changed.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Entity, EntityKey as _, EntityType, Escaped};

use super::command::possible_key;
use super::scoop::Scoop;
use crate::RuntimeError;
use crate::entity_fold::EntityFold;
use crate::model::entity::Unfolded;
use crate::store::EntityId;
use crate::store::entity::Refolded;
use crate::util::retries::GivenUp;

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
    scoop: Scoop,
    key: Option<String>,
    after: String,
    limit: Option<u64>,
    entity: PhantomData<fn() -> E>,
}

impl<E: Entity> RebuildEntities<E> {
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
    type Output = Result<RebuiltEntities, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { scoop, key, after, limit, .. } = self;
        let rebuild = Rebuild {
            scoop,
            entity: EntityType::of::<E>(),
            report: RebuiltEntities::default(),
            failures: vec![],
            failed: 0,
        };
        match key {
            Some(key) => rebuild.one(key).boxed(),
            None => rebuild.all(after, limit).boxed(),
        }
    }
}

/// A rebuild under way.
struct Rebuild {
    scoop: Scoop,
    entity: EntityType,
    report: RebuiltEntities,
    failures: Vec<EntityNotRebuilt>,
    failed: u64,
}

impl Rebuild {
    async fn one(mut self, key: String) -> Result<RebuiltEntities, RuntimeError> {
        let id = possible_key(EntityId { name: self.entity.name(), key })?;
        self.rebuild(id).await?;
        self.result()
    }

    async fn all(mut self, mut after: String, limit: Option<u64>) -> Result<RebuiltEntities, RuntimeError> {
        let name = self.entity.name();
        let tables = self.scoop.tables("a rebuild of entities")?.clone();
        let mut left = limit.unwrap_or(u64::MAX);
        loop {
            let page = u32::try_from(left).unwrap_or(u32::MAX).min(KEYS_MAX);
            let keys = self.scoop.retrying(|_| tables.entity_keys(name, &after, page)).await;
            let keys = keys.map_err(GivenUp::error("the entities were listed"))?;
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

    fn result(self) -> Result<RebuiltEntities, RuntimeError> {
        let Self { entity, report, failures, failed, .. } = self;
        match failed {
            0 => Ok(report),
            failed => Err(RuntimeError::EntitiesNotRebuilt {
                entity: entity.name(),
                failed,
                failures,
                rebuilt: Box::new(report),
            }),
        }
    }

    /// Rebuilds an entity, or notes why that is impossible.
    async fn rebuild(&mut self, id: EntityId) -> Result<(), RuntimeError> {
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
    async fn fold(&mut self, id: &EntityId) -> Result<Result<bool, Unfolded>, RuntimeError> {
        let bytes_max = self.scoop.limits().payload_bytes_max;
        let store = self.scoop.store();
        let tables = self.scoop.tables("a rebuild of entities")?;
        let mut fold = match EntityFold::new(self.entity) {
            Ok(fold) => fold,
            Err(unfolded) => return Ok(Err(unfolded)),
        };
        loop {
            loop {
                let page = self.scoop.retrying(|_| store.entity_events(id, fold.version, EVENTS_MAX)).await;
                let page = page.map_err(GivenUp::error("the events of an entity were looked up"))?;
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
            let refolded = self.scoop.retrying(|_| {
                tables.refold_entity(id, version, EVENTS_MAX, |events| {
                    let mut fold = EntityFold::resume(self.entity, state.as_ref(), version)?;
                    fold.apply(events)?;
                    Ok((fold.version, fold.written(bytes_max)?))
                })
            });
            match refolded.await.map_err(GivenUp::error("the state of an entity was rebuilt"))? {
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

/// `scoop_operate::Entities::rebuild`.
pub fn rebuild_entities<E: Entity>(scoop: &Scoop) -> RebuildEntities<E> {
    const {
        assert!(!E::IN_TABLE, "the states of this entity are in a table of yours, so they are not rebuilt");
    }
    RebuildEntities {
        scoop: scoop.clone(),
        key: None,
        after: String::new(),
        limit: None,
        entity: PhantomData,
    }
}
