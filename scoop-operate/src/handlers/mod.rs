//! Handlers: which are registered and which were, their workers, definitions and queues.

mod redelivery;
mod redelivery_rows;
mod retire;

use std::collections::{BTreeSet, HashMap};
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt, TryFutureExt};
use scoop_runtime::internal::{self, FetchExt as _, HandlerList, IDENTIFIER_PREFIX, json, system_time, time};
use scoop_runtime::{QueueLength, RegisteredHandler};
use serde::{Serialize, Serializer};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

pub use self::redelivery::{Redeliver, Redelivered};
pub use self::retire::{Retire, Retired};
use crate::database::Database;
use crate::statements::{HANDLER_LIST_RETIRED, WORKER_LIST, WORKER_LIST_DEFINITIONS};
use crate::{Operate, OperateError};

/// The handlers of a database.
#[derive(Clone)]
pub struct Handlers {
    pub(crate) operate: Operate,
}

/// A list of handlers about to be read. Await it.
///
/// ```no_run
/// # use scoop_operate::OperateExt as _;
/// # use scoop_runtime::Scoop;
/// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
/// let mut page = scoop.operate().handlers().list().limit(100).await?;
/// while let Some(last) = page.last() {
///     println!("up to saga {} on {}", last.handler, last.topic);
///     page = scoop.operate().handlers().list().after(&last.topic, &last.handler).limit(100).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is read before this is awaited"]
#[derive(Clone)]
pub struct ListHandlers {
    database: Arc<Database>,
    part: HandlerList,
}

impl ListHandlers {
    /// Sets the maximum number of handlers; by default all are read.
    pub fn limit(mut self, handlers: u32) -> Self {
        self.part.limit = Some(handlers);
        self
    }

    /// Reads only the handlers after that of this topic and saga. With the last handler of a list, this is the next page.
    pub fn after(mut self, topic: impl Into<String>, saga: impl Into<String>) -> Self {
        self.part.after = (topic.into(), saga.into());
        self
    }

    /// Reads only the handlers whose topic or saga has this text in its name, with the same case. All names up to the last found
    /// one are compared.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let invoices = scoop.operate().handlers().list().named("invoice").limit(10).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn named(mut self, text: impl Into<String>) -> Self {
        self.part.named = text.into();
        self
    }

    /// Reads only the handlers of the topic of exactly this name.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let has_handlers = !scoop.operate().handlers().list().topic("orders.placed").limit(1).await?.is_empty();
    /// # Ok(())
    /// # }
    /// ```
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.part.topic = Some(name.into());
        self
    }

    /// Reads only the handlers of the saga of exactly this name, one for each of its topics.
    pub fn saga(mut self, name: impl Into<String>) -> Self {
        self.part.saga = Some(name.into());
        self
    }

    async fn read(self) -> Result<Vec<RegisteredHandler>, OperateError> {
        let Self { database, part } = &self;
        database.read_retrying("the handlers were listed", |_| database.list_handlers(part)).await
    }
}

impl IntoFuture for ListHandlers {
    type Output = Result<Vec<RegisteredHandler>, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

/// A list of retired handlers about to be read. Await it.
///
/// ```no_run
/// # use scoop_operate::OperateExt as _;
/// # use scoop_runtime::Scoop;
/// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
/// let first = scoop.operate().handlers().former().limit(100).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is read before this is awaited"]
#[derive(Clone)]
pub struct ListFormerHandlers {
    database: Arc<Database>,
    limit: Option<u32>,
}

impl ListFormerHandlers {
    /// Sets the maximum number of handlers; by default all are read.
    pub fn limit(mut self, handlers: u32) -> Self {
        self.limit = Some(handlers);
        self
    }

    async fn read(self) -> Result<Vec<FormerHandler>, OperateError> {
        let Self { database, limit } = &self;
        database.read_retrying("the handlers were listed", |_| database.former_handlers(*limit)).await
    }
}

impl IntoFuture for ListFormerHandlers {
    type Output = Result<Vec<FormerHandler>, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

impl Handlers {
    /// Registers a handler of a program that has not started yet: messages launched from now on wait for it. A handler that is
    /// registered stays as it is. Do not register a saga under a new name while it is registered under a former one: its program
    /// renames it when it starts.
    ///
    /// A program registers its handlers when it starts. Then it also records for how long their hierarchies are kept, which is
    /// for ever until then, and the fields that operators must not see.
    ///
    /// # Errors
    ///
    /// [`OperateError::is_invalid`] if the topic is empty, has more than 63 bytes or a NUL character; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the handler may be registered even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// scoop.operate().handlers().register("orders.placed", "newsletter").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn register(
        &self,
        topic: impl Into<String>,
        handler: impl Into<String>,
    ) -> impl Future<Output = Result<(), OperateError>> + Send {
        internal::register_handler(&self.operate.scoop, topic, handler).err_into()
    }

    /// Retires a handler whose programs are gone: messages launched from now on are not delivered to it. Await it for
    /// the number of pending deliveries, and see [`Retire::drop_pending`].
    ///
    /// Its unfinished runs stay, and wait for a program that has the saga. A running process with the saga continues
    /// them; the next start of one registers the handler again. A launch in progress may still be delivered to it;
    /// repeat the call to see.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the handler may be retired even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let retired = scoop.operate().handlers().retire("orders.placed", "newsletter").await?;
    /// if retired.pending > 0 {
    ///     scoop.operate().handlers().retire("orders.placed", "newsletter").drop_pending().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn retire(&self, topic: impl Into<String>, handler: impl Into<String>) -> Retire {
        Retire::new(self.operate.clone(), topic.into(), handler.into())
    }

    /// Delivers messages of a topic that had no handler at their launch to the handlers that are subscribed now.
    /// Await it for the result. [`Redeliver`] has methods that limit the time and the number of messages.
    ///
    /// Each message is redelivered at most once ever, to all handlers subscribed at that moment. So the call can be
    /// repeated, and be made by several processes at once.
    ///
    /// * A message that a client launched, or a step detached, continues its hierarchy: a [`Handle`](scoop_runtime::Handle)
    ///   of it waits again.
    /// * A message that a step launched starts a hierarchy of its own, as if it had been
    ///   [detached](scoop_runtime::Scope::detach): the step did not wait for it, and its saga may have ended since. A later
    ///   rollback of that saga does not affect the new hierarchy. The tree of the saga names it.
    ///
    /// The message keeps the context with which it was launched, deadlines included. Not redelivered are messages whose
    /// hierarchy was cancelled, whose saga was or will be rolled back, or whose delivery was
    /// [dropped](Retire::drop_pending).
    ///
    /// The call reads all events since the given time, ten thousand per query, and redelivers two hundred messages
    /// per transaction.
    ///
    /// # Errors
    ///
    /// [`OperateError::is_not_found`] if no handler is subscribed to the topic; or if the database fails. Messages that
    /// were redelivered until then stay redelivered; repeat the call.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, some of the messages may have been redelivered. Repeat the call.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// use std::time::{Duration, SystemTime};
    ///
    /// let last_week = SystemTime::now() - Duration::from_secs(7 * 24 * 60 * 60);
    /// while scoop.operate().handlers().redeliver("orders.placed").since(last_week).await?.more {}
    /// # Ok(())
    /// # }
    /// ```
    pub fn redeliver(&self, topic: impl Into<String>) -> Redeliver {
        Redeliver::new(self.operate.clone(), topic.into())
    }

    /// The registered handlers, by topic and saga: those of all programs that ever started on this schema, unless they were
    /// [retired](crate::Handlers::retire). Messages are delivered to them. Await it, or choose a part before:
    /// [`limit`](ListHandlers::limit), [`after`](ListHandlers::after), [`named`](ListHandlers::named),
    /// [`topic`](ListHandlers::topic), [`saga`](ListHandlers::saga).
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for listed in scoop.operate().handlers().list().await? {
    ///     println!("{} listens on {}; limits: {}", listed.handler, listed.topic, listed.limits);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self) -> ListHandlers {
        ListHandlers { database: self.operate.database(), part: HandlerList::default() }
    }

    /// The handlers that are not registered any more, by topic and saga: they were [retired](crate::Handlers::retire), or their
    /// sagas have other names now. Await it.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for former in scoop.operate().handlers().former().limit(100).await? {
    ///     println!("{former:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn former(&self) -> ListFormerHandlers {
        ListFormerHandlers { database: self.operate.database(), limit: None }
    }

    /// The queues of the sagas with a limit of their queue (`#[saga(queue = ..)]`), by the names of the sagas. The
    /// [guide](https://docs.rs/crate/scoop-saga/latest/source/docs/limits.md) describes such limits;
    /// [`RegisteredHandler::limits`] has all limits of a saga.
    ///
    /// The call counts the waiting runs, for each queue up to its limit.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for queue in scoop.operate().handlers().queues().await?.iter().filter(|queue| queue.is_nearly_full()) {
    ///     println!("{queue}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn queues(&self) -> BoxFuture<'static, Result<Vec<QueueLength>, OperateError>> {
        let database = self.operate.database();
        async move {
            database.read_retrying("the queues were listed", |_| database.queue_lengths(None)).await
        }
        .boxed()
    }

    /// The [queues](Self::queues) of the sagas of these handlers that have a limit of their queue, by the names of the sagas.
    /// Other runs are not counted.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let orders = scoop.operate().handlers().list().named("order").limit(100).await?;
    /// for queue in scoop.operate().handlers().queues_of(&orders).await? {
    ///     println!("{queue}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn queues_of(
        &self,
        handlers: &[RegisteredHandler],
    ) -> BoxFuture<'static, Result<Vec<QueueLength>, OperateError>> {
        let limited = handlers.iter().filter(|it| it.limits.queue.is_some()).map(|it| it.handler.clone());
        let (database, sagas) =
            (self.operate.database(), limited.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
        async move {
            if sagas.is_empty() {
                return Ok(vec![]);
            }
            database.read_retrying("the queues were listed", |_| database.queue_lengths(Some(&sagas))).await
        }
        .boxed()
    }

    /// One list for each of these handlers, in their order: the [definition](crate::WorkerSaga::definition) of each living worker that
    /// has the handler, sorted.
    ///
    /// The cost grows with the number of sagas of all workers; only those of these handlers are sent by the server.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let handlers = scoop.operate().handlers().list().limit(100).await?;
    /// for (handler, definitions) in handlers.iter().zip(scoop.operate().handlers().definitions(&handlers).await?) {
    ///     println!("{} has {} workers", handler.handler, definitions.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn definitions(
        &self,
        handlers: &[RegisteredHandler],
    ) -> BoxFuture<'static, Result<Vec<Vec<i32>>, OperateError>> {
        let database = self.operate.database();
        let (topics, sagas): (Vec<_>, Vec<_>) =
            handlers.iter().map(|it| (it.topic.clone(), it.handler.clone())).unzip();
        async move {
            let living = database
                .read_retrying("the workers were listed", |_| database.living_definitions(&topics, &sagas))
                .await?;
            let mut served: HashMap<_, Vec<i32>> = HashMap::new();
            for (topic, saga, definition) in &living {
                served.entry((topic, saga)).or_default().push(*definition);
            }
            served.values_mut().for_each(|definitions| definitions.sort_unstable());
            let of = |pair| served.get(&pair).cloned().unwrap_or_default();
            Ok(topics.iter().zip(&sagas).map(of).collect())
        }
        .boxed()
    }

    /// The registered workers, the oldest first: the programs that run sagas, and those that died and of which no other has
    /// taken over the runs yet.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for worker in scoop.operate().handlers().workers().await? {
    ///     println!("{} with {} sagas", worker.identifier, worker.sagas.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn workers(&self) -> BoxFuture<'static, Result<Vec<RegisteredWorker>, OperateError>> {
        let database = self.operate.database();
        async move { database.read_retrying("the workers were listed", |_| database.list_workers()).await }
            .boxed()
    }
}

impl Database {
    pub(crate) async fn former_handlers(&self, limit: Option<u32>) -> sqlx::Result<Vec<FormerHandler>> {
        let query = sqlx::query(self.text(HANDLER_LIST_RETIRED)).bind(limit.map(i64::from));
        let rows = query.all(self.sessions()).await?;
        let read = |row: &PgRow| -> sqlx::Result<FormerHandler> {
            let retired_at = system_time(time(row, "retired_at")?);
            Ok(FormerHandler { topic: row.try_get("topic")?, handler: row.try_get("handler")?, retired_at })
        };
        rows.iter().map(read).collect()
    }

    pub(crate) async fn list_workers(&self) -> sqlx::Result<Vec<RegisteredWorker>> {
        let rows = sqlx::query(self.text(WORKER_LIST)).all(self.sessions()).await?;
        rows.iter().map(read_registered).collect()
    }

    async fn living_definitions(
        &self,
        topics: &[String],
        handlers: &[String],
    ) -> sqlx::Result<Vec<(String, String, i32)>> {
        let query = sqlx::query(self.text(WORKER_LIST_DEFINITIONS)).bind(topics).bind(handlers);
        let rows = query.all(self.sessions()).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
    }
}

fn read_registered(row: &PgRow) -> sqlx::Result<RegisteredWorker> {
    let id: Uuid = row.try_get("id")?;
    let application: Option<String> = row.try_get("application")?;
    let sagas =
        WorkerSaga::of_lists(row.try_get("topics")?, row.try_get("handlers")?, row.try_get("definitions")?);
    Ok(RegisteredWorker {
        identifier: format!("{IDENTIFIER_PREFIX}{id}"),
        started_at: system_time(time(row, "started_at")?),
        service: row.try_get("service")?,
        build: row.try_get("build")?,
        is_alive: row.try_get("is_alive")?,
        application: application.filter(|name| !name.is_empty()),
        address: row.try_get("address")?,
        sagas,
    })
}

/// A handler that is not registered any more: it was retired, or its saga has another name now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FormerHandler {
    /// The topic that it was subscribed to.
    pub topic: String,
    /// The saga.
    pub handler: String,
    /// The end of its registration.
    #[serde(serialize_with = "json::time")]
    pub retired_at: SystemTime,
}

/// A registered worker, with its sagas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RegisteredWorker {
    /// Its identifier in events.
    #[serde(rename = "worker")]
    pub identifier: String,
    /// The time since which it runs.
    #[serde(serialize_with = "json::time")]
    pub started_at: SystemTime,
    /// The service of its program: [`Builder::service`](scoop_runtime::Builder::service).
    pub service: String,
    /// The build of its program: [`Builder::build`](scoop_runtime::Builder::build).
    pub build: String,
    /// Whether its session lives. If it does not, another worker takes its runs over, and its registration is deleted.
    #[serde(rename = "alive")]
    pub is_alive: bool,
    /// The name of its connection, which begins with that of the program; if the role may see it.
    pub application: Option<String>,
    /// The address from which it has connected, unless that is a local socket; if the role may see it.
    pub address: Option<String>,
    /// Its sagas.
    #[serde(rename = "handlers", serialize_with = "names")]
    pub sagas: Vec<WorkerSaga>,
}

/// The names of sagas.
fn names<S: Serializer>(sagas: &[WorkerSaga], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(sagas.iter().map(|saga| &saga.handler))
}

/// A saga that a worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSaga {
    /// The topic that it is subscribed to.
    pub topic: String,
    /// The saga, by its stored name.
    pub handler: String,
    /// The number of the definition of the saga.
    pub definition: i32,
}

impl WorkerSaga {
    /// The sagas in the lists of a row.
    pub(crate) fn of_lists(topics: Vec<String>, handlers: Vec<String>, definitions: Vec<i32>) -> Vec<Self> {
        let sagas = topics.into_iter().zip(handlers).zip(definitions);
        sagas.map(|((topic, handler), definition)| Self { topic, handler, definition }).collect()
    }
}
