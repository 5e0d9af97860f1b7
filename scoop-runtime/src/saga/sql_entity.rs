//! Entities whose states are in tables of the user.

use std::any::Any;

use futures_util::future::BoxFuture;
use scoop_core::{Entity, Result};
use sqlx::PgConnection;

/// An entity whose state is in a table of yours, so that no data has to move. Write `table` in its attribute:
/// `#[entity(name = "account", key = i64, table)]`.
///
/// Both functions run in the transaction in which commands are decided, while the entity is locked: for up to 10 s each,
/// with a `lock_timeout` of 5 s. They change nothing but the state, and leave the transaction open.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// # use scoop_core::{Applies, Entity, Result};
/// use scoop::SqlEntity;
/// use sqlx::PgConnection;
/// # use serde::{Deserialize, Serialize};
///
/// #[derive(Default, Serialize, Deserialize)]
/// struct Account { cents: i64 }
/// # impl Entity for Account {
/// #     const NAME: &'static str = "account";
/// #     type Key = i64;
/// #     fn applications() -> Vec<scoop_core::Application> { vec![] }
/// # }
///
/// impl SqlEntity for Account {
///     async fn load_for_update(tx: &mut PgConnection, key: &i64) -> Result<Option<Self>> {
///         let cents = sqlx::query_scalar("SELECT cents FROM account WHERE id = $1 FOR UPDATE");
///         Ok(cents.bind(key).fetch_optional(tx).await?.map(|cents| Self { cents }))
///     }
///
///     async fn store(&self, tx: &mut PgConnection, key: &i64) -> Result<()> {
///         sqlx::query("INSERT INTO account VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET cents = excluded.cents")
///             .bind(key)
///             .bind(self.cents)
///             .execute(tx)
///             .await?;
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the states of `{Self}` are in a table, and it does not say how they are read and written",
    label = "no `SqlEntity`",
    note = "write `impl SqlEntity for {Self}` with `load_for_update` and `store`, or remove `table` from its `#[entity]`"
)]
pub trait SqlEntity: Entity {
    /// Reads the state, and locks its rows until the end of the transaction; `None` without rows. The commands then get
    /// the default.
    fn load_for_update(
        tx: &mut PgConnection,
        key: &Self::Key,
    ) -> impl Future<Output = Result<Option<Self>>> + Send;

    /// Writes the state that follows from the events, also one that had no rows.
    fn store(&self, tx: &mut PgConnection, key: &Self::Key) -> impl Future<Output = Result<()>> + Send;
}

pub(crate) type Erased = dyn Any + Send + Sync;

/// The functions of a [`SqlEntity`], with its types erased.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Table {
    pub(crate) load: Load,
    pub(crate) store: StoreState,
}

type Load = for<'a> fn(&'a mut PgConnection, &'a Erased) -> BoxFuture<'a, Result<Option<Box<Erased>>>>;

type StoreState = for<'a> fn(&'a Erased, &'a mut PgConnection, &'a Erased) -> BoxFuture<'a, Result<()>>;

impl Table {
    /// The functions of `E`.
    pub const fn of<E: SqlEntity>() -> Self {
        Self { load: load::<E>, store: store::<E> }
    }

    /// Those of an entity, if its states are in a table.
    pub(crate) fn find<E: Entity>() -> Option<Self> {
        E::table()?.downcast_ref().copied()
    }
}

fn load<'a, E: SqlEntity>(
    tx: &'a mut PgConnection,
    key: &'a Erased,
) -> BoxFuture<'a, Result<Option<Box<Erased>>>> {
    Box::pin(async move {
        let state = E::load_for_update(tx, key_of::<E>(key)).await?;
        Ok(state.map(|state| Box::new(state) as Box<Erased>))
    })
}

fn store<'a, E: SqlEntity>(
    state: &'a Erased,
    tx: &'a mut PgConnection,
    key: &'a Erased,
) -> BoxFuture<'a, Result<()>> {
    let state: &E = state.downcast_ref().expect("the state is of this entity");
    Box::pin(async move { state.store(tx, key_of::<E>(key)).await })
}

fn key_of<E: Entity>(key: &Erased) -> &E::Key {
    key.downcast_ref().expect("the key is of this entity")
}
