//! Commands and entities, for clients.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Decision, Entity, EntityKey as _, refused_key};
use serde_json::Value;

use super::handle::Handle;
use super::launch::Launch;
use super::scoop::Scoop;
use crate::error::ErrorKind;
use crate::error::sqlstate::decodes_data;
use crate::saga::sql_entity::{Erased, Table};
use crate::store::EntityId;
use crate::store::entity::{RENUMBER, StoredEntity};
use crate::util::retries::GivenUp;
use crate::{Command, RuntimeError};

/// The version of an entity and its state, which is missing without rows.
type VersionedState = (u64, Option<Box<Erased>>);

/// The number of attempts to read the version and the state of an entity without rows at one time.
const TABLE_READS_MAX: u32 = 100;

/// A command that was sent. It dereferences to the [`Handle`] of its hierarchy.
pub struct CommandHandle<C> {
    handle: Handle,
    command: PhantomData<fn() -> C>,
}

impl<C> From<Handle> for CommandHandle<C> {
    fn from(handle: Handle) -> Self {
        Self { handle, command: PhantomData }
    }
}

impl<C> Clone for CommandHandle<C> {
    fn clone(&self) -> Self {
        self.handle.clone().into()
    }
}

impl<C> Deref for CommandHandle<C> {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl<C: Command> CommandHandle<C> {
    /// Waits for the decision. Handlers of its event may not have finished by then: [`Handle::wait`] waits for them.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::no_result`] if the command was [refused](crate::NoResult::Refused) or failed, or no program handled it
    /// when it was sent. Another if the decision is of other types; otherwise as [`Handle::wait`].
    pub async fn decision(&self) -> Result<C::Reply, RuntimeError> {
        self.handle.decision::<C>().await
    }
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommandState {
    /// The entity has applied its event.
    Accepted,
    /// The entity has not changed.
    Rejected,
    /// Its caller may not send it: nothing was decided.
    Refused,
}

impl CommandState {
    /// The state with this recorded decision.
    pub(super) fn of(decision: Value) -> serde_json::Result<Self> {
        Ok(match serde_json::from_value::<Decision<Value, Value>>(decision)? {
            Decision::Accepted(_) => Self::Accepted,
            Decision::Rejected(_) => Self::Rejected,
        })
    }
}

impl fmt::Display for CommandState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
        })
    }
}

/// The same, if there can be an entity with this key.
/// Checks the key of an entity.
pub fn possible_key(id: EntityId) -> Result<EntityId, RuntimeError> {
    match refused_key(&id.key) {
        None => Ok(id),
        Some(why) => {
            let EntityId { name, key } = id;
            Err(RuntimeError::from(ErrorKind::Entity { entity: name, key, why: format!("the key {why}") }))
        }
    }
}

/// The state of an entity at a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntityState<E> {
    /// The number of its events; 0 for one that has none.
    pub version: u64,
    /// The state after these.
    pub state: E,
}

impl Scoop {
    /// Sends a command. Await it for a [`CommandHandle`], whose [`id`](Handle::id) is known at once; the options are
    /// those of [`Scoop::launch`].
    ///
    /// # Errors
    ///
    /// As [`Scoop::launch`].
    ///
    /// # Cancel safety
    ///
    /// Once polled, the command may be sent even if the future is dropped.
    ///
    /// ```no_run
    /// # async fn example<ReserveStock: scoop_runtime::Command>(
    /// #     scoop: scoop_runtime::Scoop, command: ReserveStock,
    /// # ) -> Result<(), scoop_runtime::RuntimeError> {
    /// let reservation = scoop.send(command).await?;
    /// println!("command {}", reservation.id());
    /// if reservation.decision().await?.is_accepted() {
    ///     println!("reserved");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn send<C: Command>(&self, command: C) -> Launch<C, CommandHandle<C>> {
        Launch::new(self.clone(), command)
    }

    /// The state of the entity with this key.
    ///
    /// # Errors
    ///
    /// If the key has no bytes, more than 255, or a NUL character, if the stored state does
    /// not fit the type, or if its version is less than 0; or if the database fails.
    ///
    /// ```no_run
    /// # async fn example<Stock: scoop_core::Entity<Key = u64>>(
    /// #     scoop: scoop_runtime::Scoop,
    /// # ) -> Result<(), scoop_runtime::RuntimeError> {
    /// let stock = scoop.entity::<Stock>(7).await?;
    /// println!("version {}", stock.version);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn entity<E: Entity>(&self, key: E::Key) -> Result<EntityState<E>, RuntimeError> {
        let id = EntityId { name: E::NAME, key: key.to_key() };
        if let Some(table) = Table::find::<E>() {
            let (version, state) = self.entity_in_table(id, table, Box::new(key)).await?;
            let state = state.map(|state| *state.downcast::<E>().expect("the state is of this entity"));
            return Ok(EntityState { version, state: state.unwrap_or_default() });
        }
        let EntityId { key, .. } = id;
        let (version, state) = self.stored_entity(EntityId { name: E::NAME, key: key.clone() }).await?;
        let state = state.map_or_else(|| Ok(E::default()), |state| E::read_stored(&state));
        let state = state.map_err(|error| {
            RuntimeError::from(ErrorKind::Entity { entity: E::NAME, key, why: error.to_string() })
        })?;
        Ok(EntityState { version, state })
    }

    /// The version and the state of an entity in a table of the user, which is locked meanwhile: so the version is that of
    /// the state.
    fn entity_in_table(
        &self,
        id: EntityId,
        table: Table,
        key: Box<Erased>,
    ) -> BoxFuture<'_, Result<VersionedState, RuntimeError>> {
        async move {
            let id = possible_key(id)?;
            let unreadable = |why: String| {
                let EntityId { name, key } = id.clone();
                RuntimeError::from(ErrorKind::Entity { entity: name, key, why })
            };
            let Some(pool) = (!self.is_in_memory()).then(|| self.pool()) else {
                return Err(unreadable("its state is in a table, and this program runs in memory".into()));
            };
            const DOING: &str = "an entity was looked up";
            for _ in 0..TABLE_READS_MAX {
                let (before, _) = self.stored_entity(id.clone()).await?;
                let mut tx = pool.begin().await.map_err(RuntimeError::database(DOING))?;
                let state = (table.load)(&mut tx, &*key).await;
                let state = state.map_err(|error| unreadable(error.to_string()))?;
                // Commands that change it need its lock, so they are decided before or later.
                let (version, _) = self.stored_entity(id.clone()).await?;
                tx.rollback().await.map_err(RuntimeError::database(DOING))?;
                // Without rows there is no lock.
                if state.is_some() || version == before {
                    return Ok((version, state));
                }
            }
            Err(unreadable("its first rows change all the time".into()))
        }
        .boxed()
    }

    fn stored_entity(&self, id: EntityId) -> BoxFuture<'_, Result<(u64, Option<Value>), RuntimeError>> {
        async move {
            let id = possible_key(id)?;
            let stored = self.retrying(|_| self.store().entity(&id)).await.map_err(|given_up| {
                match decodes_data(&given_up.source) {
                    true => {
                        let (entity, key) = (id.name, id.key.clone());
                        RuntimeError::from(ErrorKind::Entity {
                            entity,
                            key,
                            why: given_up.source.to_string(),
                        })
                    }
                    false => GivenUp::error("an entity was looked up")(given_up),
                }
            });
            let StoredEntity { version, state } = stored?.unwrap_or_default();
            let version = u64::try_from(version).map_err(|_| {
                let why = format!("its version is {version}, less than 0; {RENUMBER}");
                RuntimeError::from(ErrorKind::Entity { entity: id.name, key: id.key.clone(), why })
            })?;
            Ok((version, state))
        }
        .boxed()
    }
}
