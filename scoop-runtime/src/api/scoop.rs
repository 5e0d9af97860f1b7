//! The handle of a running program: launches messages, looks up hierarchies, shuts down.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::SignalKey;
use sqlx::PgPool;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::api::handle::waits::Waits;
use crate::api::signal_types::SignalTypes;
use crate::completion::StartedAs;
use crate::engine::launch_batcher::LaunchBatcher;
use crate::engine::{Admission, Engine, current_step};
use crate::error::ErrorKind;
use crate::settings::{CLIENT_CONNECTIONS, Limits, Settings, WORKING_CONNECTIONS};
use crate::store::{
    Archive, ConnectionSettings, NewMessage, ParentRef, PostgresStore, RepairResult, Schema, Sessions, Store,
};
use crate::unhandled::UnhandledWarnings;
use crate::util::detached::run_to_completion;
use crate::util::retries::{Attempt, GivenUp, Retries};
use crate::{IdKind, RuntimeError};

/// A server that belongs to a program; dropping it blocks until it has stopped.
pub(super) type PrivateServer = Box<dyn Send>;

/// A running program with sagas, or a client. Cheap to clone.
///
/// When the last clone is dropped, the engine stops as in [`Scoop::shutdown`], in the background.
///
/// Cancel safety: a future that only reads or waits can be dropped and repeated. The others say what may have happened then.
#[derive(Clone)]
pub struct Scoop {
    inner: Arc<Inner>,
}

struct Inner {
    /// The pool of the user; `None` in memory.
    pool: Option<PgPool>,
    /// The store, which has connections of its own.
    store: Store,
    engine: Option<Arc<Engine>>,
    /// The handles that wait.
    waits: Arc<Waits>,
    /// Batches launches of a client, which has no engine.
    batcher: Arc<LaunchBatcher>,
    unhandled: Arc<UnhandledWarnings>,
    /// Admits launches to queues with a limit.
    admission: Admission,
    /// Limits the concurrent launches with a key. Each may have to wait for a transaction of another client, and one
    /// connection must remain for other statements.
    unique_launches: Semaphore,
    /// Limits the attempts to send a signal whose id a transaction of another client may hold.
    repeated_signals: Semaphore,
    signal_types: SignalTypes,
    server: Mutex<Option<PrivateServer>>,
    limits: Limits,
    retry_for: Duration,
    /// That of a client.
    archive: OnceLock<Archive>,
    /// Cancelled when a shutdown begins.
    stopping: CancellationToken,
    /// Cancelled by a shutdown: the streams of events end.
    stopped: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.stopped.cancel();
        if let Some(engine) = &self.engine {
            engine.stop();
        }
    }
}

impl Scoop {
    /// A client, which launches messages for the processes that run the sagas. The tables must exist: the first
    /// process that [starts](crate::Builder::start) makes them. [`Builder::client`](crate::Builder::client) checks that
    /// they do, and makes a client with other settings or [behind a proxy](crate::Builder::behind_proxy).
    ///
    /// ```no_run
    /// # extern crate scoop_runtime as scoop;
    /// # fn example(pool: sqlx::PgPool) {
    /// let scoop = scoop::Scoop::client(pool);
    /// # }
    /// ```
    pub fn client(pool: PgPool) -> Self {
        let schema = Schema::new("scoop").expect("the default schema has a good name");
        let sessions = Sessions::new(&pool, CLIENT_CONNECTIONS, &ConnectionSettings::default());
        let (store, settings) = (Store::from(PostgresStore::new(sessions, &schema)), Settings::default());
        Self::new(Some(pool), store, None, None, (settings.limits, settings.retry_for))
    }

    pub(crate) fn new(
        pool: Option<PgPool>,
        store: Store,
        engine: Option<Arc<Engine>>,
        server: Option<PrivateServer>,
        (limits, retry_for): (Limits, Duration),
    ) -> Self {
        let server = Mutex::new(server);
        let unhandled = engine.as_ref().map(|engine| engine.unhandled.clone());
        let unhandled = unhandled.unwrap_or_else(|| UnhandledWarnings::new(store.clone()));
        let waits = Waits::new(store.clone(), engine.clone());
        let batcher = LaunchBatcher::new(store.clone(), engine.clone(), unhandled.clone());
        let admission = Admission::new(store.clone(), engine.clone(), retry_for);
        let connections = if engine.is_some() { WORKING_CONNECTIONS } else { CLIENT_CONNECTIONS };
        let keyed = Semaphore::new(usize::try_from(connections - 1).unwrap_or(1));
        Self {
            inner: Arc::new(Inner {
                pool,
                store,
                engine,
                waits,
                batcher,
                unhandled,
                admission,
                unique_launches: keyed,
                repeated_signals: Semaphore::new(1),
                signal_types: SignalTypes::default(),
                server,
                limits,
                retry_for,
                archive: OnceLock::new(),
                stopping: CancellationToken::new(),
                stopped: CancellationToken::new(),
            }),
        }
    }

    /// Looks up the message that started this hierarchy.
    pub(crate) async fn root_message(&self, id: Uuid) -> Result<Uuid, RuntimeError> {
        let found = self.retrying(|_| self.store().root_message(id)).await;
        match found.map_err(GivenUp::error("a hierarchy was looked up"))? {
            Some(message) => Ok(message),
            None => Err(self.misnamed(id, IdKind::Hierarchy).await?),
        }
    }

    /// The error for a request with an id that does not name what was `wanted`.
    pub(crate) async fn misnamed(&self, id: Uuid, wanted: IdKind) -> Result<RuntimeError, RuntimeError> {
        let named = self.retrying(|_| self.store().named(id)).await;
        let named = named.map_err(GivenUp::error("an id was looked up"))?;
        Ok(match (named, wanted) {
            (Some(named), _) => RuntimeError::from(ErrorKind::WrongId { id, named, wanted }),
            (None, IdKind::Hierarchy) => RuntimeError::from(ErrorKind::NoSuchMessage { id }),
            (None, IdKind::Run | IdKind::RunOrHierarchy) => RuntimeError::from(ErrorKind::NoSuchRun { id }),
        })
    }

    /// Stops in good order: no new step begins, and running steps end and are recorded. Their runs continue in other
    /// processes or after the next start. A private PostgreSQL is stopped, too. Waits for the running steps without a
    /// limit; [`Scoop::shutdown_within`] has one. A client waits until the workers are notified of what it has launched.
    ///
    /// If a private PostgreSQL was stopped, later operations of the program and of its handles fail with
    /// [`RuntimeError::is_unavailable`]. On another database they go on: what is launched is left to other processes.
    ///
    /// # Errors
    ///
    /// If it is called in a step of this program, which is not shut down.
    /// [`RuntimeError::is_unavailable`] if the tokio runtime that this program was started on is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel the shutdown.
    pub fn shutdown(&self) -> impl Future<Output = Result<(), RuntimeError>> + Send {
        async move {
            self.outside_of_steps()?;
            self.inner.stopping.cancel();
            let stopped = match &self.inner.engine {
                Some(engine) => {
                    engine.stop();
                    engine.stopped().await
                }
                None => {
                    self.inner.batcher.notified().await;
                    Ok(())
                }
            };
            self.inner.stopped.cancel();
            self.stop_server().await;
            stopped
        }
        .boxed()
    }

    /// As [`Scoop::shutdown`], but aborts the steps that still run after this time. Each is dropped at its next
    /// `await`, its transaction is rolled back, and its run is handed to other workers, where the step begins
    /// again. A step that runs at most once fails there as [`Interrupted`](scoop_core::Interrupted), and
    /// its saga rolls back: allow as much time as such a step takes, or stop by [`Scoop::shutdown`], which lets it end. A
    /// step that blocks its thread cannot be aborted: after two more seconds its run is handed over anyway, and the
    /// result of the step is discarded.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::stopped_steps`] with the saga, the step and the run of each of these steps; otherwise as
    /// [`Scoop::shutdown`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel the shutdown, but removes the limit: the steps then run to their end.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(scoop: scoop_runtime::Scoop) {
    /// if let Err(error) = scoop.shutdown_within(Duration::from_secs(20)).await {
    ///     eprintln!("{error}");
    /// }
    /// # }
    /// ```
    pub fn shutdown_within(&self, limit: Duration) -> impl Future<Output = Result<(), RuntimeError>> + Send {
        async move {
            self.outside_of_steps()?;
            self.inner.stopping.cancel();
            let stopped = match &self.inner.engine {
                Some(engine) => engine.stop_within(limit).await,
                None => Ok(()),
            };
            self.inner.stopped.cancel();
            self.stop_server().await;
            stopped
        }
        .boxed()
    }

    /// Returns once a shutdown of this program, or of this client, has begun, or all of its handles are gone.
    pub(crate) fn shutdown_begun(&self) -> impl Future<Output = ()> + Send + 'static {
        self.inner.stopping.clone().cancelled_owned()
    }

    /// An error in a step of this program: a shutdown waits for its end.
    fn outside_of_steps(&self) -> Result<(), RuntimeError> {
        match current_step(self.store()).filter(|_| self.engine().is_some()) {
            Some(step) => Err(RuntimeError::from(ErrorKind::ShutdownInStep {
                saga: step.saga.clone(),
                step: step.step.clone(),
            })),
            None => Ok(()),
        }
    }

    /// Stops the private PostgreSQL, if there is one. A failure is logged.
    fn stop_server(&self) -> BoxFuture<'_, ()> {
        async move {
            let mut server = self.inner.server.lock().await;
            if server.is_some() {
                if let Some(pool) = &self.inner.pool {
                    pool.close().await;
                }
                self.store().close().await;
            }
            if let Some(server) = server.take() {
                // Without a runtime the server is dropped here.
                let _ = tokio::task::spawn_blocking(move || drop(server)).await;
            }
        }
        .boxed()
    }

    /// The pool that steps get their transactions from: the pool of the user, or that of the private PostgreSQL.
    ///
    /// # Panics
    ///
    /// In memory (`Scoop::in_memory`), where there is no pool.
    pub fn pool(&self) -> &PgPool {
        let pool = self.inner.pool.as_ref();
        pool.expect("this program runs in memory, so it has no pool")
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        self.inner.pool.is_none()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn engine(&self) -> Option<&Arc<Engine>> {
        self.inner.engine.as_ref()
    }

    /// The handles that wait.
    pub(crate) fn waits(&self) -> &Arc<Waits> {
        &self.inner.waits
    }

    /// What gets hierarchies before they are deleted.
    pub(crate) fn archive(&self) -> Option<&Archive> {
        match self.engine() {
            Some(engine) => engine.settings().archive.as_ref(),
            None => self.inner.archive.get(),
        }
    }

    /// Gives a client an archive.
    pub(super) fn with_archive(self, archive: Option<Archive>) -> Self {
        if let Some(archive) = archive {
            // It is new, and has none.
            let _ = self.inner.archive.set(archive);
        }
        self
    }

    pub(crate) fn unhandled(&self) -> &Arc<UnhandledWarnings> {
        &self.inner.unhandled
    }

    pub(crate) fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// For how long an operation is retried while the database is away.
    pub(crate) fn retry_for(&self) -> Duration {
        self.inner.retry_for
    }

    /// Admits launches to queues with a limit.
    pub(crate) fn admission(&self) -> &Admission {
        &self.inner.admission
    }

    /// Launches messages in a transaction of their own, and notifies the processes with their handlers.
    pub(crate) fn launch_messages(
        &self,
        messages: Vec<NewMessage>,
    ) -> BoxFuture<'_, Result<StartedAs, GivenUp>> {
        async move {
            if !messages.iter().any(|message| message.is_unique) {
                return self.launch_now(messages).await;
            }
            // Of two launches with one key, the second waits in the server until the first is committed, even if its
            // future is dropped.
            let scoop = self.clone();
            let launched = run_to_completion(async move {
                let _permit = scoop.inner.unique_launches.acquire().await;
                scoop.launch_now(messages).await
            });
            launched.await
        }
        .boxed()
    }

    /// Launches with retries. The ids of the messages exist already, so a retry finds the messages of an earlier
    /// attempt.
    async fn launch_now(&self, mut messages: Vec<NewMessage>) -> Result<StartedAs, GivenUp> {
        // A commit in memory costs nothing that a batch would save.
        let is_batched = matches!(self.store(), Store::Postgres(_)) && messages.len() == 1;
        if is_batched && !messages[0].is_unique {
            return self.inner.batcher.launch(messages.remove(0), self.trial()).await;
        }
        let started = self.inner.batcher.launch_together(messages, self.trial()).await?;
        Ok(match started[..] {
            [single] => single,
            _ => StartedAs::Other,
        })
    }

    /// Retries this for as long as the retry time of the program lasts. The argument is the attempt.
    pub(crate) async fn retrying<T: Send, F>(&self, attempt: impl FnMut(Attempt) -> F) -> Result<T, GivenUp>
    where
        F: Future<Output = sqlx::Result<T>> + Send,
    {
        self.trial().run(attempt).await
    }

    /// As [`Self::retrying`], for a read of rows that may be many: for a list, a tree or an explanation. Reads
    /// take turns, and leave connections to the sagas of the program. Reads that may take longer than the retry time are not
    /// joined, since one would fail. Not for a look at one message, as of `Handle::wait`, which must not wait behind a slow list.
    pub(crate) async fn read_retrying<T: Send, F>(&self, read: impl FnMut(Attempt) -> F) -> Result<T, GivenUp>
    where
        F: Future<Output = sqlx::Result<T>> + Send,
    {
        self.trial().reading(self.store().read_permits()).run(read).await
    }

    /// Cancelled by a shutdown.
    pub(crate) fn stopped(&self) -> &CancellationToken {
        &self.inner.stopped
    }

    /// Begins an operation with retries.
    pub(crate) fn trial(&self) -> Retries {
        Retries::new(self.retry_for())
    }

    /// Has the engine poll soon: a transaction of the caller may commit a launch without a notification.
    pub(crate) fn poll_for_foreign_commit(&self) {
        if let Some(engine) = &self.inner.engine {
            engine.poll_for_foreign_commit();
        }
    }

    /// The turns of repeated attempts to send a signal.
    pub(super) fn signal_types(&self) -> &SignalTypes {
        &self.inner.signal_types
    }

    pub(crate) fn repeated_signals(&self) -> &Semaphore {
        &self.inner.repeated_signals
    }

    /// Has the engine deliver a signal that a transaction of the caller may soon commit.
    pub(crate) fn deliver_after_foreign_commit(&self, to: SignalKey) {
        if let Some(engine) = &self.inner.engine {
            engine.deliver_after_foreign_commit(to);
        }
    }

    /// Has the engine of this process look for what is due. The other processes are notified.
    pub(crate) fn reschedule_timer(&self) {
        if let Some(engine) = &self.inner.engine {
            engine.reschedule_timer();
        }
    }

    /// Handles marked cancellations: notifies the processes that execute these runs, and wakes the waiting ones.
    pub(crate) async fn on_cancelled(&self, runs: Vec<ParentRef>) -> Result<(), RuntimeError> {
        match &self.inner.engine {
            Some(engine) => engine.on_cancelled(runs),
            None => {
                let store = self.store();
                let woken = self.retrying(|_| store.wake(&runs)).await;
                woken.map_err(GivenUp::error("a cancellation was requested"))?;
                // A failed notification is made up for by polling.
                let _ = store.notify(Uuid::nil()).await;
            }
        }
        Ok(())
    }

    /// Handles a repaired run: notifies the processes with its handler, and wakes the parent run.
    pub(crate) async fn on_repaired(&self, repaired: RepairResult) -> Result<(), RuntimeError> {
        self.notify_ready(&repaired.handlers);
        let Some(parent) = repaired.parent.map(|parent| [parent]) else {
            return Ok(());
        };
        self.wake(&parent).await.map_err(GivenUp::error("a failed compensation was repaired"))
    }

    /// Wakes these runs if they wait for no child any more, and notifies the processes with their handlers.
    pub(crate) async fn wake(&self, parents: &[ParentRef]) -> Result<(), GivenUp> {
        self.notify_ready(&self.retrying(|_| self.store().wake(parents)).await?);
        Ok(())
    }

    /// Notifies the processes with these handlers.
    pub(crate) fn notify_ready(&self, handlers: &[String]) {
        match &self.inner.engine {
            Some(engine) => engine.notify_ready(handlers),
            None => self.inner.batcher.notify_ready(handlers),
        }
    }
}
