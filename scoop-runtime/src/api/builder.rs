//! Start-up: settings, provided sagas, and all checks before anything runs.

use std::any::TypeId;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use scoop_core::wait::WaitPlan;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use super::migrate::bring_up_to_date;
use super::scoop::PrivateServer;
use crate::engine::{self, Engine};
use crate::error::ErrorKind;
use crate::error::is_crowded;
use crate::model::program::Program;
use crate::model::retention::Retention;
use crate::saga::join::collector_name;
use crate::saga::registry::{Provided, Registry};
use crate::settings::{
    CLIENT_CONNECTIONS, ENGINE_CONNECTIONS, FAILURE_TEXT_BYTES_MIN, Limits, Settings, WORKING_CONNECTIONS,
};
use crate::store::{self, ConnectionSettings, PostgresStore, Schema, Sessions, StepTransactions, Store};
use crate::util::program;
use crate::util::retries::{FOREVER, GivenUp, Retries};
use crate::{RuntimeError, Saga, Scoop, SetupError};

/// The maximum length of the name of a service, or of a build, in characters.
const NAME_CHARS_MAX: usize = 255;

/// The settings of a program with sagas, which [starts](Builder::start) it.
///
/// ```no_run
/// # extern crate scoop_runtime as scoop;
/// # async fn example(pool: sqlx::PgPool) -> Result<(), scoop_runtime::RuntimeError> {
/// use scoop::Scoop;
///
/// let scoop = Scoop::builder().postgres(pool).concurrency(64).start().await?;
/// scoop.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing runs before `start` is called"]
pub struct Builder {
    database: Option<Database>,
    access: ConnectionSettings,
    schema: String,
    provided: Provided,
    only: Option<Vec<TypeId>>,
    expected: Vec<String>,
    service: Option<String>,
    build: Option<String>,
    retained: Option<Vec<String>>,
    pub(super) settings: Settings,
    pub(super) poll_interval: Option<Duration>,
    migrates: Option<bool>,
}

/// The database of a program.
pub(super) enum Database {
    Pool(PgPool),
    /// A private PostgreSQL, with its data in this folder if one is given.
    #[cfg(feature = "embedded")]
    Embedded(Option<std::path::PathBuf>),
    #[cfg(feature = "in-memory")]
    Memory(store::MemoryStore),
}

impl Builder {
    /// The times for which finished hierarchies are kept: by default 7 days if they committed, and 30 days otherwise. A type
    /// of messages can have times of its own: `#[message(retention = "90 days")]`, `retention = "forever"`, or one for each outcome:
    /// `retention(committed = "7 days", rolled_back = "30 days")`. Then programs with sagas delete the whole record of a hierarchy, in
    /// small transactions beside their work, one process at a time.
    ///
    /// The times count for hierarchies that begin with a message to a saga of this program. If sagas of several programs
    /// handle it, the longest time counts. For messages without a handler the times of the program that deletes count. The
    /// guide has a page about [retention](https://docs.rs/crate/scoop-saga/latest/source/docs/retention.md).
    ///
    /// ```no_run
    /// # extern crate scoop_runtime as scoop;
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), scoop_runtime::RuntimeError> {
    /// use scoop::{Retention, Scoop};
    ///
    /// let scoop = Scoop::builder().postgres(pool).retention(Retention::forever()).start().await?;
    /// # scoop.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn retention(mut self, times: Retention) -> Self {
        self.settings.retention = Retention { is_archived: self.settings.retention.is_archived, ..times };
        self
    }

    /// The minimum of `max_connections` of a pool. One connection listens, and three serve the engine to claim,
    /// settle and wake; these four are opened beside the pool. At least one remains for the transactions of steps.
    /// [`Builder::start`] fails with less. The guide has the whole budget, and the requirements of a proxy.
    ///
    /// ```
    /// # use scoop_runtime::Builder;
    /// use sqlx::postgres::PgPoolOptions;
    ///
    /// let steps_at_once = 8;
    /// let pool = PgPoolOptions::new().max_connections(Builder::required_connections() - 1 + steps_at_once);
    /// # let _ = pool;
    /// ```
    pub const fn required_connections() -> u32 {
        ENGINE_CONNECTIONS + 1
    }

    pub(crate) fn new() -> Self {
        Self {
            database: None,
            access: ConnectionSettings::default(),
            schema: "scoop".into(),
            provided: Provided::default(),
            only: None,
            expected: vec![],
            service: None,
            build: None,
            retained: None,
            settings: Settings::default(),
            poll_interval: None,
            migrates: None,
        }
    }

    /// Adds the faults that a test injects.
    #[cfg(feature = "testing")]
    pub(crate) fn rehearsed(mut self, rehearsal: crate::rehearsal::Rehearsal) -> Self {
        self.settings.rehearsal = Some(rehearsal);
        self
    }

    /// Runs on this database.
    pub(super) fn on(mut self, database: Database) -> Self {
        self.database = Some(database);
        self
    }

    /// Runs on the PostgreSQL of this pool (version 15 or later).
    ///
    /// Steps get their transactions from this pool, so that they work with the same role and settings as the rest of
    /// the program. The engine opens connections of its own, with the same options, and counts them against
    /// `max_connections` of the pool. That must be at least [`Builder::required_connections`]; the remaining
    /// connections are for steps. `PgPoolOptions::test_before_acquire(false)` saves a round trip for each step.
    pub fn postgres(self, pool: PgPool) -> Self {
        self.on(Database::Pool(pool))
    }

    /// Declares that the pool leads through a proxy that assigns connections per transaction, such as PgBouncer with
    /// `pool_mode = transaction`. A [`client`](Builder::client) needs nothing else. A program that
    /// [starts](Builder::start) also has to [listen directly](Builder::listen_directly).
    ///
    /// All statements then run in explicit transactions, which costs round trips, and no session state is used. The
    /// pool must not cache prepared statements: `PgConnectOptions::statement_cache_capacity(0)`. The guide has a page
    /// on what the proxy needs.
    pub fn behind_proxy(mut self) -> Self {
        self.access.behind_proxy = true;
        self
    }

    /// The options of a direct connection to the server, for the one connection that cannot use the proxy. It listens
    /// for notifications, and holds the session lock which shows that this process lives. The tables are also made on
    /// it. All other connections go [through the proxy](Builder::behind_proxy) of the pool.
    ///
    /// ```no_run
    /// # extern crate scoop_runtime as scoop;
    /// # async fn example() -> scoop_core::Result<()> {
    /// use scoop::Scoop;
    /// use sqlx::postgres::{PgConnectOptions, PgPool};
    ///
    /// let proxy: PgConnectOptions = "postgres://proxy:6432/shop".parse()?;
    /// let server: PgConnectOptions = "postgres://server:5432/shop".parse()?;
    /// let pool = PgPool::connect_with(proxy.statement_cache_capacity(0)).await?;
    /// let scoop = Scoop::builder().postgres(pool).listen_directly(server).start().await?;
    /// # scoop.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn listen_directly(mut self, server: PgConnectOptions) -> Self {
        self.access.direct = Some(server);
        self.behind_proxy()
    }

    /// Puts the tables into this schema instead of `scoop`. Installations in two schemas of one database are
    /// separate. The name is used unchanged, also if it is a reserved word, in upper case or with spaces: up to 57
    /// bytes without control characters and `'`, `$`, `%`. A database in memory has no schemas and ignores this.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// Whether the tables are made, or brought up to date, before anything else. By default [`Builder::start`] does
    /// so and [`Builder::client`] does not. Without it, tables of another version are an error. With tables of this
    /// version, no right to create anything is needed in either case.
    ///
    /// So a deployment can make the tables with a role that may create them ([`migrate`](crate::api::migrate()) does
    /// the same as a step of its own), and start the programs with another role. A database in memory has no tables and
    /// ignores this.
    ///
    /// ```no_run
    /// # extern crate scoop_runtime as scoop;
    /// # async fn example(owner: sqlx::PgPool, pool: sqlx::PgPool) -> Result<(), scoop_runtime::RuntimeError> {
    /// use scoop::Scoop;
    ///
    /// Scoop::builder().postgres(owner).migrate(true).client().await?;
    /// let scoop = Scoop::builder().postgres(pool).migrate(false).start().await?;
    /// # scoop.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn migrate(mut self, migrates: bool) -> Self {
        self.migrates = Some(migrates);
        self
    }

    /// Provides a saga that has dependencies, once for each type. A saga that implements `Default` need not be provided.
    pub fn provide<S: Saga>(mut self, saga: S) -> Self {
        self.provided.add(saga);
        self
    }

    /// Restricts the program to this saga, and to others for which this is called. By default all linked sagas run.
    pub fn only<S: Saga>(mut self) -> Self {
        self.only.get_or_insert_default().push(TypeId::of::<S>());
        self
    }

    /// Sagas that the program must have, by their stored names: without one of them [`start`](Builder::start) fails with
    /// [`SetupError::MissingSaga`].
    ///
    /// The linker drops a library of sagas that no code refers to, and all its sagas with it. `use your_library as _;` in
    /// the program keeps it.
    ///
    /// ```no_run
    /// # extern crate scoop_runtime as scoop;
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), scoop_runtime::RuntimeError> {
    /// use scoop::Scoop;
    ///
    /// let scoop = Scoop::builder().postgres(pool).expects(["checkout", "nightly-report"]).start().await?;
    /// # scoop.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn expects(mut self, sagas: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.expected.extend(sagas.into_iter().map(Into::into));
        self
    }

    /// The service that this program is a part of: its processes replace each other in a deployment. By default this is the package
    /// of its sagas, or the name of its file if they are of several packages.
    ///
    /// A handler belongs to the service that has started with it last. A program without this setting retires none. If a new build of
    /// the service does not have the handler, it is
    /// retired (`operate().handlers().retire`) as soon as no process has it any more, and one of the new build lives: the new process has
    /// started after the first one of the build that had it. Nothing is retired while no process of the service lives.
    ///
    /// Programs of one service must not divide its handlers among them without [`Builder::only`] or [`Builder::retain_handlers`].
    ///
    /// ```no_run
    /// # extern crate scoop_runtime as scoop;
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), scoop_runtime::RuntimeError> {
    /// use scoop::Scoop;
    ///
    /// let shop = Scoop::builder().postgres(pool).service("shop").retain_handlers(["newsletter"]).start().await?;
    /// # shop.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = Some(name.into());
        self
    }

    /// The build of this program, such as its version or its commit. By default this is a fingerprint of its sagas, so that programs
    /// with the same sagas are one build.
    pub fn build(mut self, id: impl Into<String>) -> Self {
        self.build = Some(id.into());
        self
    }

    /// The handlers that stay registered although this program does not have them: see [`Builder::service`]. By default these are
    /// none, and all if the program names no service, or is restricted by [`Builder::only`].
    pub fn retain_handlers(mut self, sagas: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.retained.get_or_insert_default().extend(sagas.into_iter().map(Into::into));
        self
    }

    /// The maximum number of runs executed at the same time, by default 256. A run that waits for its children, for a
    /// time, or for a retry does not count; one whose step waits for a connection does. One of sixteen slots is
    /// reserved for sagas with hardly any running executions, when their messages are launched in this process.
    /// `usize::MAX` is no limit.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.settings.concurrency = runs;
        self
    }

    /// How large the stored values of this program may be, and how deep its hierarchies.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Whom runs of this program wait for after a launch, if neither the launch, its message nor the saga says so. By default
    /// they wait for all handlers that are registered when the message is launched.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use scoop_core::wait::{AtLeast, WaitStrategy};
    /// # fn example(builder: scoop_runtime::Builder) -> scoop_runtime::Builder {
    /// builder.default_wait(AtLeast(1).within(Duration::from_secs(60)))
    /// # }
    /// ```
    pub fn default_wait(mut self, plan: impl Into<WaitPlan>) -> Self {
        self.settings.default_wait = Some(plan.into());
        self
    }

    /// The maximum time for which an operation is retried while the database is away, as when the server restarts or
    /// connections are cut; by default 30 seconds. Then the operation fails with [`RuntimeError::is_unavailable`]. This
    /// applies to launches, requests such as [`Scoop::cancel`], and reads. Zero means a single attempt.
    ///
    /// A launch or request takes effect once, regardless of the number of attempts: its ids are made in the program.
    /// Two operations are not retried after a lost answer: `operate().handlers().retire` and `operate().handlers().redeliver`. Their error then says that [they may have
    /// happened](RuntimeError::may_have_happened). [`Handle::wait`](crate::Handle::wait) retries without a limit, and
    /// a transaction of the caller ([`Launch::in_transaction`](crate::Launch::in_transaction)) is never repeated.
    ///
    /// ```no_run
    /// # extern crate scoop_runtime as scoop;
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), scoop_runtime::RuntimeError> {
    /// use std::time::Duration;
    /// use scoop::Scoop;
    ///
    /// let client = Scoop::builder().postgres(pool).retry_for(Duration::from_secs(5)).client().await?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_for(mut self, duration: Duration) -> Self {
        self.settings.retry_for = duration.min(FOREVER);
        self
    }

    /// The interval at which the engine polls for ready runs, by default one second; in memory, where no notification
    /// is lost, one hour; a millisecond at least. It only affects how soon a lost notification is made up for.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = Some(interval.min(FOREVER));
        self
    }

    /// Checks the program, makes the tables or brings them up to date ([by default](Builder::migrate)), registers the
    /// subscriptions, and starts the engine.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::setup`] with all mistakes in the program and the settings, or, if there are none, in the
    /// database, such as missing rights. Others if the pool or the server has no connection left, or if the database
    /// fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready leaves nothing running; tables that were made stay.
    pub fn start(mut self) -> impl Future<Output = Result<Scoop, RuntimeError>> + Send {
        async move {
            let (registry, schema) = self.check()?;
            self.settings.program = self.program(&registry);
            match self.database.take() {
                #[cfg(feature = "in-memory")]
                Some(Database::Memory(memory)) => self.start_in_memory(registry, memory).await,
                database => self.start_on(registry, &schema, database).await,
            }
        }
        .boxed()
    }

    async fn start_on(
        mut self,
        registry: Registry,
        schema: &Schema,
        database: Option<Database>,
    ) -> Result<Scoop, RuntimeError> {
        self.settings.poll_interval = self.poll_interval.unwrap_or(self.settings.poll_interval);
        let (pool, server) = connect(database).await?;
        match self.start_with(registry, schema, &pool).await {
            Ok((store, engine, limits)) => Ok(Scoop::new(Some(pool), store, Some(engine), server, limits)),
            Err(error) => {
                Err(explain(error, &pool, Builder::required_connections(), ENGINE_CONNECTIONS).await)
            }
        }
    }

    async fn start_with(
        self,
        registry: Registry,
        schema: &Schema,
        pool: &PgPool,
    ) -> Result<(Store, Arc<Engine>, (Limits, Duration)), RuntimeError> {
        let for_steps = pool.options().get_max_connections().saturating_sub(ENGINE_CONNECTIONS);
        let for_steps = usize::try_from(for_steps).unwrap_or(usize::MAX);
        let sessions = Sessions::new(pool, WORKING_CONNECTIONS, &self.access).shared_with_engine();
        store::check(pool, &sessions).await?;
        let low = store::low_limit(pool, &sessions).await;
        if let Some(low) = low.map_err(RuntimeError::database("the limits of connections were looked up"))? {
            return Err(vec![low].into());
        }
        if self.migrates.unwrap_or(true) {
            bring_up_to_date(&sessions, schema).await?;
        } else {
            check_tables(&sessions, schema, self.settings.retry_for).await?;
        }
        let connections = StepTransactions::new(pool.clone(), for_steps, sessions.preamble());
        let tables = PostgresStore::new(sessions, schema);
        check_rights(&tables).await?;
        let store = Store::from(tables);
        let limits = (self.settings.limits, self.settings.retry_for);
        let engine = engine::start(store.clone(), Some(connections), registry, self.settings)
            .await
            .map_err(RuntimeError::database("the engine started"))?;
        Ok((store, engine, limits))
    }

    /// Connects without running any saga: the result can launch messages and look up hierarchies. The tables must
    /// exist, which is checked, [unless the client makes them](Builder::migrate).
    ///
    /// # Errors
    ///
    /// As [`Builder::start`], except for those about sagas; and [`RuntimeError::setup`] with
    /// [`SetupError::NoTables`], [`SetupError::SchemaTooOld`] or [`SetupError::SchemaTooNew`] if the tables are not
    /// those of this version of Scoop. While the server is away, connecting is retried for as long as the
    /// [retry time](Builder::retry_for) lasts.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready leaves nothing behind.
    pub fn client(self) -> impl Future<Output = Result<Scoop, RuntimeError>> + Send {
        async move {
            let mut errors = self.wrong_settings();
            let schema = Schema::new(&self.schema).map_err(|error| errors.push(error));
            let (Ok(schema), true) = (schema, errors.is_empty()) else { return Err(errors.into()) };
            let limits = (self.settings.limits, self.settings.retry_for);
            #[cfg(feature = "in-memory")]
            if let Some(Database::Memory(memory)) = self.database {
                let client = Scoop::new(None, Store::Memory(memory), None, None, limits);
                return Ok(client.with_archive(self.settings.archive));
            }
            let (pool, server) = connect(self.database).await?;
            let sessions = Sessions::new(&pool, CLIENT_CONNECTIONS, &self.access);
            if self.migrates.unwrap_or(false) {
                store::check(&pool, &sessions).await?;
                bring_up_to_date(&sessions, &schema).await.map_err(RuntimeError::denied)?;
            } else {
                check_tables(&sessions, &schema, self.settings.retry_for).await?;
            }
            let store = Store::from(PostgresStore::new(sessions, &schema));
            Ok(Scoop::new(Some(pool), store, None, server, limits).with_archive(self.settings.archive))
        }
        .boxed()
    }

    /// The handlers that stay registered although the program does not have them; none for all.
    fn retained(&self) -> Option<Vec<String>> {
        let is_whole = self.service.is_some() && self.only.is_none();
        let retained = self.retained.clone().or_else(|| is_whole.then(Vec::new))?;
        let collectors = retained.iter().map(|name| collector_name(name)).collect::<Vec<_>>();
        Some([retained, collectors].concat())
    }

    /// What this process says of its program.
    fn program(&self, registry: &Registry) -> Program {
        let by_default = || program::service(&registry.packages, &program::file_name());
        Program {
            service: self.service.clone().unwrap_or_else(by_default),
            build: self.build.clone().unwrap_or_else(|| registry.sagas.fingerprint()),
            retained: self.retained(),
        }
    }

    /// Checks everything that needs no database.
    fn check(&self) -> Result<(Registry, Schema), RuntimeError> {
        let mut errors = self.wrong_settings();
        if self.poll_interval.is_some_and(|interval| interval < Duration::from_millis(1)) {
            errors.push(SetupError::TooSmall { setting: "poll_interval in ms", min: 1, value: 0 });
        }
        for (setting, min, value) in [
            ("concurrency", 1, self.settings.concurrency),
            ("depth_max", 1, self.settings.limits.depth_max),
            ("failure_text_bytes_max", FAILURE_TEXT_BYTES_MIN, self.settings.limits.failure_text_bytes_max),
        ] {
            errors.extend((value < min).then_some(SetupError::TooSmall { setting, min, value }));
        }
        if let Some(Database::Pool(pool)) = &self.database {
            let (max, required) = (pool.options().get_max_connections(), Builder::required_connections());
            errors.extend((max < required).then_some(SetupError::PoolTooSmall { max, required }));
        }
        errors.extend(self.settings.retention.mistakes());
        let named = [("service", &self.service), ("build", &self.build)];
        let named = named.into_iter().filter_map(|(setting, name)| Some((setting, name.as_deref()?)));
        let unfit = named.filter(|(_, name)| {
            name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control)
        });
        errors.extend(unfit.map(|(setting, name)| SetupError::UnfitName { setting, name: name.to_owned() }));
        let schema = Schema::new(&self.schema).map_err(|error| errors.push(error));
        let registry = Registry::collect(&self.provided, self.only.as_deref(), &self.expected)
            .map_err(|mistakes| errors.extend(mistakes));
        match (registry, schema) {
            (Ok(registry), Ok(schema)) if errors.is_empty() => Ok((registry, schema)),
            _ => Err(errors.into()),
        }
    }

    /// Mistakes in the settings that also apply to a client.
    fn wrong_settings(&self) -> Vec<SetupError> {
        let settings = [
            ("payload_bytes_max", self.settings.limits.payload_bytes_max),
            ("context_bytes_max", self.settings.limits.context_bytes_max),
        ];
        let small = settings.into_iter().filter(|(_, value)| *value == 0);
        let small = small.map(|(setting, value)| SetupError::TooSmall { setting, min: 1, value });
        small.chain(self.database.is_none().then_some(SetupError::NoDatabase)).collect()
    }
}

/// Checks that the tables are those of this version of scoop.
async fn check_tables(sessions: &Sessions, schema: &Schema, retry_for: Duration) -> Result<(), RuntimeError> {
    let unfit = Retries::new(retry_for).run(|_| store::unfit_tables(sessions, schema));
    match unfit.await.map_err(GivenUp::error("the tables were looked up")) {
        Ok(None) => Ok(()),
        Ok(Some(unfit)) => Err(vec![unfit].into()),
        Err(error) => Err(error.denied()),
    }
}

/// Checks that the role has the rights that a worker needs.
async fn check_rights(tables: &PostgresStore) -> Result<(), RuntimeError> {
    const DOING: &str = "the rights of the role were checked";
    let lacking = tables.lacking_rights().await.map_err(RuntimeError::database(DOING))?;
    if lacking.is_empty() {
        return Ok(());
    }
    let refusal = format!("permission denied: the role lacks {}", lacking.join(", "));
    Err(vec![SetupError::Denied { doing: DOING.to_owned(), refusal }].into())
}

/// Adds the remedy to an error of a start.
pub(super) async fn explain(error: RuntimeError, pool: &PgPool, required: u32, own: u32) -> RuntimeError {
    use sqlx::migrate::MigrateError::{Execute, ExecuteMigration};
    if !error.kind().of_sqlx().is_some_and(is_crowded) {
        return error.denied();
    }
    let source = match error.into_kind() {
        ErrorKind::Database { source, .. }
        | ErrorKind::Migration { source: Execute(source) | ExecuteMigration(source, _), .. } => source,
        kind => return kind.into(),
    };
    let (max, options) = (pool.options().get_max_connections(), pool.connect_options());
    let refusal = match source {
        sqlx::Error::PoolTimedOut => {
            store::refusal(&options, required).await.map(|refusal| refusal.to_string())
        }
        _ => Some(source.to_string()),
    };
    RuntimeError::from(ErrorKind::NoConnection { max, required, own, refusal, source })
}

async fn connect(database: Option<Database>) -> Result<(PgPool, Option<PrivateServer>), RuntimeError> {
    match database {
        Some(Database::Pool(pool)) => Ok((pool, None)),
        #[cfg(feature = "embedded")]
        Some(Database::Embedded(folder)) => super::embedded::connect(folder).await,
        _ => Err(vec![SetupError::NoDatabase].into()),
    }
}

impl Scoop {
    /// A builder: choose a database, provide the dependencies of the sagas, start.
    pub fn builder() -> Builder {
        Builder::new()
    }
}
