//! The handle of a running program: launch, look up, shut down.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use sqlx::{PgConnection, PgPool};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::client::{Handle, Launch, LaunchAll};
use crate::embedded::Embedded;
use crate::engine::{Engine, Start};
use crate::gather::Gathered;
use crate::settings::{CLIENT_CONNECTIONS, ENGINE_CONNECTIONS, Settings, WORKING_CONNECTIONS};
use crate::store::{Access, Launched, Parent, Repaired, Schema, Sessions, Store, Tables};
use crate::unhandled::UnhandledWarnings;
use crate::uninterrupted::uninterrupted;
use crate::{Builder, RuntimeError, Saga, payload};
use scoop_core::{Definition, Message};

/// A program with sagas, or a client of one. Cheap to clone.
///
/// When the last clone is dropped, the engine stops as in [`Scoop::shutdown`], but nobody waits
/// for it.
#[derive(Clone)]
pub struct Scoop {
    inner: Arc<Inner>,
}

struct Inner {
    /// The user's; nothing in memory.
    pool: Option<PgPool>,
    /// On connections of its own.
    store: Store,
    engine: Option<Arc<Engine>>,
    /// What is launched without an engine.
    gathered: Arc<Gathered>,
    unhandled: Arc<UnhandledWarnings>,
    /// For launches with a key. Each may have to wait for the transaction of somebody else, and they must leave a
    /// connection to others.
    keyed: Semaphore,
    embedded: tokio::sync::Mutex<Option<Embedded>>,
    limits: Limits,
}

/// How large things may be that are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) payload_bytes_max: usize,
    pub(crate) context_bytes_max: usize,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(engine) = &self.engine {
            engine.stop();
        }
    }
}

impl Scoop {
    /// The way to start: choose a database, hand over what the sagas need, start.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Starts all sagas of the program in its memory, without any database: for tests that take no time.
    /// What is launched runs by the same engine as anywhere else. It is gone with the last clone.
    ///
    /// The clock is that of tokio. Where that is paused (`start_paused`, of tokio's feature `test-util`)
    /// time is virtual: as soon as nothing is left to do, it is as late as the next thing is due. So a sleep
    /// of two weeks takes no time.
    ///
    /// There is no transaction, so a step that asks for one ([`Scope::tx`](crate::Scope::tx),
    /// [`Scope::detach_unique`](crate::Scope::detach_unique)) fails, and says so. Nothing is stored as text: what
    /// PostgreSQL does to JSON (it sorts keys and drops duplicates) does not happen.
    ///
    /// With more than one process, or a client, see [`InMemory`](crate::InMemory).
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Setup`] with all that is wrong with the program.
    ///
    /// # Cancel safety
    ///
    /// As [`Builder::start`].
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { customer: u32 }
    /// # impl scoop_core::Message for Remind { const TOPIC: &'static str = "remind"; type Reply = (); }
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), scoop_runtime::RuntimeError> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    /// # runtime.block_on(async {
    /// let scoop = scoop_runtime::Scoop::in_memory().await?;
    /// let two_weeks = Duration::from_secs(14 * 24 * 60 * 60);
    /// scoop.launch(Remind { customer: 7 }).delay(two_weeks).await?.wait().await?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn in_memory() -> Result<Self, RuntimeError> {
        Self::builder().in_memory().start().await
    }

    /// A client that runs no saga, but launches messages for the processes that do. The tables
    /// must be there: the first process that [starts](Builder::start) makes them. One behind a proxy is
    /// made by [`Builder::client`], see [`Builder::behind_proxy`].
    ///
    /// ```no_run
    /// # fn example(pool: sqlx::PgPool) {
    /// let scoop = scoop_runtime::Scoop::client(pool);
    /// # }
    /// ```
    pub fn client(pool: PgPool) -> Self {
        let schema = Schema::new("scoop").expect("the default schema has a good name");
        let sessions = Sessions::new(&pool, CLIENT_CONNECTIONS, &Access::default());
        let store = Store::from(Tables::new(sessions, &schema));
        Self::new(Some(pool), store, None, None, Settings::default().limits())
    }

    /// The connections a pool must allow: one that listens, three with which the engine claims,
    /// settles and wakes (these four it opens beside the pool), and at least one for the
    /// transactions of steps. [`Builder::start`] fails with less. The guide has the whole budget, and
    /// what a proxy needs.
    ///
    /// ```
    /// # use scoop_runtime::Scoop;
    /// use sqlx::postgres::PgPoolOptions;
    ///
    /// let steps_at_once = 8;
    /// let pool = PgPoolOptions::new().max_connections(Scoop::required_connections() - 1 + steps_at_once);
    /// # let _ = pool;
    /// ```
    pub const fn required_connections() -> u32 {
        ENGINE_CONNECTIONS + 1
    }

    pub(crate) fn new(
        pool: Option<PgPool>,
        store: Store,
        engine: Option<Arc<Engine>>,
        embedded: Option<Embedded>,
        limits: Limits,
    ) -> Self {
        let embedded = tokio::sync::Mutex::new(embedded);
        let unhandled = engine.as_ref().map(|engine| engine.unhandled.clone());
        let unhandled = unhandled.unwrap_or_else(|| UnhandledWarnings::new(store.clone()));
        let gathered = Gathered::new(store.clone(), unhandled.clone());
        let connections = if engine.is_some() { WORKING_CONNECTIONS } else { CLIENT_CONNECTIONS };
        let keyed = Semaphore::new(usize::try_from(connections - 1).unwrap_or(1));
        Self { inner: Arc::new(Inner { pool, store, engine, gathered, unhandled, keyed, embedded, limits }) }
    }

    /// Launches a message in a transaction of its own. Await it for a [`Handle`]. What a client launches
    /// many times at once is committed together, where one that is refused does not stop the others.
    ///
    /// # Errors
    ///
    /// When the message cannot be stored, [`RuntimeError::NoHandler`] if it requires a handler and none is
    /// subscribed, or when the database fails; it is then not launched, unless the connection was lost in the
    /// very moment of the commit.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it may be launched even if the future is dropped.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let outcome = scoop.launch(OrderPlaced { order: 7 }).await?.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn launch<M: Message>(&self, message: M) -> Launch<M> {
        Launch::new(self.clone(), message)
    }

    /// Launches many messages in one transaction: all or none. Await it for their [`Handle`]s.
    ///
    /// # Errors
    ///
    /// As [`Scoop::launch`].
    ///
    /// # Cancel safety
    ///
    /// Once begun, they may be launched even if the future is dropped; never a part of them.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let orders = scoop.launch_all((0..1000).map(|order| OrderPlaced { order })).await?;
    /// assert_eq!(orders.len(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn launch_all<M: Message>(&self, messages: impl IntoIterator<Item = M>) -> LaunchAll {
        let limit = self.limits().payload_bytes_max;
        let prepared = messages.into_iter().map(|message| payload::prepare(&message, limit)).collect();
        LaunchAll::new(self.clone(), prepared, std::any::type_name::<M>())
    }

    /// Launches a message in a transaction of the caller: it exists exactly if that commits.
    ///
    /// # Errors
    ///
    /// As [`Scoop::launch`].
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: scoop_runtime::Scoop, pool: sqlx::PgPool) -> scoop_core::Result<()> {
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("INSERT INTO orders VALUES (7)").execute(&mut *tx).await?;
    /// let order = scoop.launch_in(&mut tx, OrderPlaced { order: 7 }).await?;
    /// tx.commit().await?;
    /// order.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn launch_in<M: Message>(
        &self,
        connection: &mut PgConnection,
        message: M,
    ) -> Result<Handle, RuntimeError> {
        self.launch(message).within(connection).await
    }

    /// Runs a saga that has a schedule now, for once. Its [`Tick`](crate::Tick) is due at this moment and
    /// counts as a run; the schedule stays as it is.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoSchedule`] if no program that gives the saga a schedule has ever started on
    /// this database, [`RuntimeError::Database`] if the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the saga may run even if the future is dropped.
    ///
    /// ```no_run
    /// # async fn example<NightlyReport: scoop_runtime::Saga>(
    /// #     scoop: scoop_runtime::Scoop,
    /// # ) -> Result<(), scoop_runtime::RuntimeError> {
    /// let outcome = scoop.trigger::<NightlyReport>().await?.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn trigger<S: Saga>(&self) -> Result<Handle, RuntimeError> {
        self.trigger_of(S::DEFINITION).await
    }

    fn trigger_of(&self, saga: Definition) -> BoxFuture<'_, Result<Handle, RuntimeError>> {
        async move {
            let Definition { saga, topic, .. } = saga;
            let (store, name) = (self.store().clone(), saga.to_string());
            let triggered = uninterrupted(async move { store.trigger(&topic, &saga).await }).await;
            let triggered = triggered.map_err(RuntimeError::database("a saga was run by hand"))?;
            let (root, id, handlers) = triggered.ok_or(RuntimeError::NoSchedule { saga: name })?;
            self.announce(&handlers);
            Ok(Handle::new(self.clone(), root, id))
        }
        .boxed()
    }

    /// The hierarchy of that id, as [`Handle::id`] gave it, perhaps to another process long ago.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoSuchMessage`] if there is none.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop, id: uuid::Uuid) -> Result<(), scoop_runtime::RuntimeError> {
    /// println!("{}", scoop.find(id).await?.tree().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn find(&self, id: Uuid) -> impl Future<Output = Result<Handle, RuntimeError>> + Send {
        async move {
            let found = self.store().root_message(id).await;
            let found = found.map_err(RuntimeError::database("a hierarchy was looked up"))?;
            let message = found.ok_or(RuntimeError::NoSuchMessage { id })?;
            Ok(Handle::new(self.clone(), id, message))
        }
        .boxed()
    }

    /// Stops in good order: nothing new is begun, running steps end and are recorded, and what
    /// they lead to is left to the other processes or to the next start. A private PostgreSQL is
    /// stopped, too. Waits for the running steps as long as they take; who cannot, puts a time
    /// limit around it and leaves the rest to the next start.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the request back.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(scoop: scoop_runtime::Scoop) {
    /// let limit = Duration::from_secs(20);
    /// if tokio::time::timeout(limit, scoop.shutdown()).await.is_err() {
    ///     eprintln!("some steps still run; they will be run again");
    /// }
    /// # }
    /// ```
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send {
        async move {
            if let Some(engine) = &self.inner.engine {
                engine.stop();
                engine.stopped().await;
            }
            if let Some(embedded) = self.inner.embedded.lock().await.take() {
                if let Some(pool) = &self.inner.pool {
                    pool.close().await;
                }
                self.store().close().await;
                if let Err(error) = embedded.stop().await {
                    tracing::warn!(%error, "the private PostgreSQL did not stop as asked");
                }
            }
        }
        .boxed()
    }

    /// The pool that steps get their transactions from: the one that was handed over, or that of
    /// the private PostgreSQL.
    ///
    /// # Panics
    ///
    /// [In memory](Scoop::in_memory), where there is no database: who shares code with that asks
    /// [`Scoop::is_in_memory`] first.
    pub fn pool(&self) -> &PgPool {
        let pool = self.inner.pool.as_ref();
        pool.expect("this program runs in memory, so it has no pool; ask `Scoop::is_in_memory` first")
    }

    /// Whether it runs [in memory](Scoop::in_memory).
    pub fn is_in_memory(&self) -> bool {
        self.inner.pool.is_none()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.inner.engine.as_deref()
    }

    pub(crate) fn unhandled(&self) -> &Arc<UnhandledWarnings> {
        &self.inner.unhandled
    }

    pub(crate) fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// Launches messages in a transaction of their own, and tells whoever has their handlers.
    pub(crate) fn publish(&self, messages: Vec<Launched>) -> BoxFuture<'_, sqlx::Result<Start>> {
        async move {
            if !messages.iter().any(|message| message.only_once) {
                return self.publish_at_once(messages).await;
            }
            // Of two with one key, the second waits until the first is committed: in the server, even if nobody here waits
            // for it any more.
            let scoop = self.clone();
            uninterrupted(async move {
                let _turn = scoop.inner.keyed.acquire().await;
                scoop.publish_at_once(messages).await
            })
            .await
        }
        .boxed()
    }

    async fn publish_at_once(&self, mut messages: Vec<Launched>) -> sqlx::Result<Start> {
        if let Some(engine) = &self.inner.engine {
            return engine.launch(messages).await;
        }
        if let [single] = &messages[..]
            && !single.only_once
        {
            let single = messages.remove(0);
            self.inner.gathered.launch(single).await?;
        } else {
            let launch = self.store().launch_alone(&messages).await?;
            self.inner.gathered.launched(&messages, &launch);
        }
        Ok(Start::Otherwise)
    }

    /// Something may be launched soon, when a transaction of the caller commits.
    pub(crate) fn expect(&self) {
        if let Some(engine) = &self.inner.engine {
            engine.expect();
        }
    }

    /// Runs were asked to give up: has whoever runs them look, and wakes those that wait.
    pub(crate) async fn asked_to_give_up(&self, runs: Vec<Parent>) -> Result<(), RuntimeError> {
        match &self.inner.engine {
            Some(engine) => engine.asked_to_give_up(runs),
            None => {
                let store = self.store();
                let woken = store.wake(&runs).await;
                woken.map_err(RuntimeError::database("a cancellation was requested"))?;
                // Polling finds what nobody was notified of.
                let _ = store.notify(Uuid::nil()).await;
            }
        }
        Ok(())
    }

    /// Somebody saw to a run that could not be undone: has whoever runs it look, and wakes who waited
    /// for it.
    pub(crate) async fn repaired(&self, repaired: Repaired) -> Result<(), RuntimeError> {
        self.announce(&repaired.handlers);
        let Some(parent) = repaired.parent else {
            return Ok(());
        };
        let woken = self.store().wake(&[parent]).await;
        let woken = woken.map_err(RuntimeError::database("a failed compensation was seen to"))?;
        self.announce(&woken);
        Ok(())
    }

    /// Has whoever runs these handlers look.
    pub(crate) fn announce(&self, handlers: &[String]) {
        match &self.inner.engine {
            Some(engine) => engine.announce(handlers),
            None => self.inner.gathered.announce(handlers),
        }
    }
}
