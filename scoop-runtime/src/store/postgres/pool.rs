//! The connections of the engine and of clients: those for statements, and the one that listens.
//!
//! They lead to the server itself, or through a proxy that hands out its sessions of the server transaction by
//! transaction (PgBouncer with `pool_mode = transaction`). Behind such a proxy the two halves of one statement,
//! preparing and executing it, may use two sessions, and a setting or a prepared statement leaks to the next client. So
//! each statement there has a transaction around it, which makes its own settings and first deallocates the statements
//! of others. The listening session, with the lock that marks this process as alive, always leads to the server itself.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Postgres, SqlSafeStr, Transaction};

use super::application_name::named;
use super::idle_cache::{IdleCache, USES_MAX};
use crate::error::loses_answer;
use crate::util::detached::run_to_completion;
use crate::util::read_permits::ReadPermits;
use crate::util::retries;
use crate::util::sync::{Mutex, lock};

/// Settings of the engine's sessions, in place of those of a role or a database. Statements and idle sessions have no
/// time limit. A session that idles in a transaction has one: otherwise the locks of a process that is stopped
/// (`SIGSTOP`) would block the other workers. Each statement has one generic plan: left to itself, the server sometimes
/// plans anew for each call, which halves the rate. That plan uses the indexes, in their order: a plan made for few
/// rows, which reads and sorts all of them, would stay in use for many. Functions and operators are those of the
/// server: another role may have put some of the same name into a schema of the role's `search_path`. Notices (of
/// objects that a migration need not create) are not logged.
pub(super) const SESSION: &str = "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_session_timeout = 0; \
    SET idle_in_transaction_session_timeout = '10s'; SET default_transaction_isolation = 'read committed'; \
    SET default_transaction_read_only = off; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off; \
    SET search_path = pg_catalog, pg_temp; SET client_min_messages = warning";

/// `SESSION` for a transaction behind a proxy. Its `BEGIN` sets the lock timeout.
const TRANSACTION: &str = "DEALLOCATE ALL; SET LOCAL statement_timeout = 0; \
    SET LOCAL idle_in_transaction_session_timeout = '10s'; SET LOCAL plan_cache_mode = force_generic_plan; \
    SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off; \
    SET LOCAL search_path = pg_catalog, pg_temp";

/// The setting of a transaction whose statement ends soon after its caller has dropped it: the server notices that the
/// connection is closed. A server on Windows refuses to check that.
const CHECKS_CONNECTION: &str =
    "SELECT set_config('client_connection_check_interval', '1s', true) WHERE version() !~* 'mingw|visual c'";

const READ_MAX: &str = "60s";

/// The limit of statements that have none.
const UNLIMITED: &str = "0";

/// The `BEGIN` of a transaction that may wait for locks.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 0";

/// The `BEGIN` of a transaction that only reads, from one snapshot.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// At most one is in use, but a lost one may take a while to be dropped.
const LISTENING_CONNECTIONS_MAX: u32 = 2;

/// A connection that has rested for this long is tested before it is used: meanwhile the server may have ended it, or
/// the network may have dropped it.
const RESTED: Duration = Duration::from_secs(5);

const TEST_MAX: Duration = Duration::from_secs(2);

/// Connections for the engine alone. In the user's pool a connection may be left in the middle of a transaction (sqlx
/// does not notice if a `begin` is cancelled while its answer is under way). Statements on it would then never be
/// committed.
#[derive(Clone, Debug)]
pub struct Sessions {
    pool: PgPool,
    listening: PgPool,
    /// The user's pool, whose options may change.
    users: PgPool,
    /// The options of `users` that `pool` and `listening` have.
    known: Arc<Mutex<Arc<PgConnectOptions>>>,
    /// The options of a direct route, if they differ from the pool's.
    direct: Option<PgConnectOptions>,
    route: Route,
    /// Connections of `pool` that were just in use.
    idle: IdleCache<PooledSession>,
    /// The number of callers that wait for `pool`: then no connection is kept.
    waiting: Arc<AtomicUsize>,
    /// The permits of reads for clients.
    reads: ReadPermits,
}

/// A connection between two statements.
#[derive(Debug)]
struct PooledSession {
    connection: PoolConnection<Postgres>,
    /// The number of statements that it has served without a rest.
    statements: u32,
}

/// The route of statements to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Direct,
    Proxied,
}

/// The route of the user's pool to the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionSettings {
    /// Through a proxy that pools transactions.
    pub(crate) behind_proxy: bool,
    /// The options of a direct route to the server, if they differ from the pool's.
    pub(crate) direct: Option<PgConnectOptions>,
}

impl Sessions {
    /// Pools of `connections` connections and of the listening one, named as the engine's. None is opened before it is
    /// needed.
    pub(crate) fn new(users: &PgPool, connections: u32, access: &ConnectionSettings) -> Self {
        let route = if access.behind_proxy { Route::Proxied } else { Route::Direct };
        let (present, direct) = (users.connect_options(), access.direct.clone());
        let (statements, listening) = options(&present, route, direct.as_ref());
        let pool = own_pool(connections, route).connect_lazy_with(statements);
        let listening = own_pool(LISTENING_CONNECTIONS_MAX, Route::Direct).connect_lazy_with(listening);
        let reads = ReadPermits::at_all(connections);
        let (users, known) = (users.clone(), Arc::new(Mutex::new(present)));
        Self {
            pool,
            listening,
            users,
            known,
            direct,
            route,
            idle: IdleCache::default(),
            waiting: Arc::default(),
            reads,
        }
    }

    /// Gives new connections the present options of the user's pool. Called before a connection may be opened: a program
    /// whose password expires renews it with `set_connect_options`.
    fn renew_options(&self) {
        let present = self.users.connect_options();
        let mut known = lock(&self.known);
        if !Arc::ptr_eq(&known, &present) {
            let (statements, listening) = options(&present, self.route, self.direct.as_ref());
            self.pool.set_connect_options(statements);
            self.listening.set_connect_options(listening);
            *known = present;
        }
    }

    /// The same for a program with an engine: reads for clients leave it half of the connections.
    pub(crate) fn shared_with_engine(self) -> Self {
        Self { reads: ReadPermits::at_half(self.connections()), ..self }
    }

    /// Runs a single statement, in a transaction of its own.
    ///
    /// If the future is dropped early, nothing is done behind a proxy. On a direct route the server may still complete
    /// the statement, but for a read for a client: that ends as one of [`read`](Self::read).
    pub async fn run<T>(
        &self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>,
    ) -> sqlx::Result<T> {
        if retries::has_permit() {
            return self.read_in(self.begin_read(BEGIN, UNLIMITED), statement).await;
        }
        // A connection dropped in the middle is left to the pool.
        let mut on = match self.route {
            Route::Direct => StatementSession::Connection(self.session().await?),
            Route::Proxied => StatementSession::Transaction(self.begin().await?),
        };
        match statement(on.connection()).await {
            Ok(answer) => self.end(on).await.map(|()| answer),
            Err(error) => {
                on.end_failed(&error);
                Err(error)
            }
        }
    }

    async fn end(&self, on: StatementSession) -> sqlx::Result<()> {
        let PooledSession { connection, statements } = match on {
            StatementSession::Connection(session) => session,
            StatementSession::Transaction(transaction) => {
                return transaction.commit().await.inspect_err(retries::note);
            }
        };
        let rests = statements >= USES_MAX || self.pool.is_closed();
        if !rests && self.waiting.load(Relaxed) == 0 {
            self.idle.put(PooledSession { connection, statements: statements + 1 });
        }
        Ok(())
    }

    /// Runs a single statement that reads and may take long, in a transaction of its own.
    ///
    /// If the future is dropped early, the connection is closed, and the server cancels the statement within a second.
    pub(crate) async fn read<T>(
        &self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>,
    ) -> sqlx::Result<T> {
        self.read_in(self.begin_read("BEGIN READ ONLY", READ_MAX), statement).await
    }

    /// Runs a statement that reads, in a transaction that begins with these statements, all of which are constant.
    async fn read_in<T>(
        &self,
        begin: String,
        statement: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>,
    ) -> sqlx::Result<T> {
        let mut reading = Reading(Some(self.session().await?.connection));
        // Safe: all of it is constant.
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *reading).await?;
        let answer = statement(&mut reading).await?;
        sqlx::raw_sql("ROLLBACK").execute(&mut *reading).await?;
        reading.0 = None;
        Ok(answer)
    }

    /// The statements that begin a transaction that reads. Each statement in it ends with this limit, or soon after its
    /// connection is closed.
    fn begin_read(&self, begin: &str, limit: &str) -> String {
        let limit = format!("SET LOCAL statement_timeout = '{limit}'");
        match self.route {
            Route::Direct => format!("{begin}; {limit}; {CHECKS_CONNECTION}"),
            Route::Proxied => format!("{begin}; {TRANSACTION}; {limit}; {CHECKS_CONNECTION}"),
        }
    }

    async fn session(&self) -> sqlx::Result<PooledSession> {
        if let Some(session) = self.idle.take()
            && !self.pool.is_closed()
        {
            return Ok(session);
        }
        self.renew_options();
        let _waiting = WaitingGuard::new(&self.waiting);
        Ok(PooledSession {
            connection: acquire(&self.pool, retries::acquires_within()).await?,
            statements: 1,
        })
    }

    /// Begins a transaction that may wait for locks.
    pub async fn begin(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        self.begin_with(BEGIN).await
    }

    /// Begins a transaction with these statements.
    pub async fn begin_with(&self, begin: &'static str) -> sqlx::Result<Transaction<'static, Postgres>> {
        let begin = match self.route {
            Route::Direct => begin.to_owned(),
            // The setting of the session does not count. A standby refuses it, like any other write.
            Route::Proxied => format!("{begin}; SET TRANSACTION READ WRITE; {TRANSACTION}"),
        };
        self.begun(begin, AfterTransaction::Reuse).await
    }

    /// Begins a transaction that only reads. All its statements see what was committed before the first one. Each ends with its
    /// limit, or soon after its caller has dropped it. The connection is closed in the end, since the end may be such a drop.
    pub(crate) async fn begin_snapshot(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        self.begun(self.begin_read(SNAPSHOT, READ_MAX), AfterTransaction::Close).await
    }

    /// Begins a transaction with these statements, all of which are constant.
    async fn begun(
        &self,
        begin: String,
        after: AfterTransaction,
    ) -> sqlx::Result<Transaction<'static, Postgres>> {
        self.renew_options();
        // Safe: all of it is constant.
        let (pool, begin) = (self.pool.clone(), AssertSqlSafe(begin));
        let waiting = WaitingGuard::new(&self.waiting);
        drop(self.idle.take());
        let within = retries::acquires_within();
        run_to_completion(async move {
            let _waiting = waiting;
            let mut connection = acquire(&pool, within).await?;
            if after == AfterTransaction::Close {
                connection.close_on_drop();
            }
            let begun = Transaction::begin(connection, Some(begin.into_sql_str())).await;
            begun.map_err(|error| if is_standby(&error) { sqlx::Error::BeginFailed } else { error })
        })
        .await
    }

    /// The statement after `BEGIN` that a transaction on a user's connection needs for preparing statements, if any.
    pub(crate) fn preamble(&self) -> &'static str {
        match self.route {
            Route::Direct => "",
            Route::Proxied => "DEALLOCATE ALL; ",
        }
    }

    /// Whether a session keeps what is prepared in it.
    pub(crate) fn supports_prepared(&self) -> bool {
        self.route == Route::Direct
    }

    pub(crate) fn connections(&self) -> u32 {
        self.pool.options().get_max_connections()
    }

    /// The permits of reads for clients.
    pub fn read_permits(&self) -> ReadPermits {
        self.reads.clone()
    }

    /// The name of the pool for statements, and how many of its connections are open and idle.
    pub(crate) fn open_connections(&self) -> (&'static str, usize, usize) {
        let open = usize::try_from(self.pool.size()).unwrap_or(usize::MAX);
        ("engine", open, self.pool.num_idle() + self.idle.len())
    }

    pub(crate) fn connect_options(&self) -> Arc<PgConnectOptions> {
        self.renew_options();
        self.pool.connect_options()
    }

    /// The pool of the listening connection. Ask again for each new connection, since its options may change.
    pub(crate) fn listening(&self) -> &PgPool {
        self.renew_options();
        &self.listening
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
        self.listening.close().await;
    }
}

/// A caller that waits for a connection of the pool: returned connections have to go there.
struct WaitingGuard(Arc<AtomicUsize>);

impl WaitingGuard {
    fn new(waiting: &Arc<AtomicUsize>) -> Self {
        waiting.fetch_add(1, Relaxed);
        Self(waiting.clone())
    }
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A connection of this pool, if there is one in time.
async fn acquire(pool: &PgPool, within: Option<Duration>) -> sqlx::Result<PoolConnection<Postgres>> {
    match within {
        None => pool.acquire().await,
        Some(within) => {
            let acquired = tokio::time::timeout(within, pool.acquire()).await;
            acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut))
        }
    }
}

/// The options of the connections for statements, and of the listening one, with those of the user's pool.
fn options(
    users: &PgConnectOptions,
    route: Route,
    direct: Option<&PgConnectOptions>,
) -> (PgConnectOptions, PgConnectOptions) {
    let statements = named(users.clone());
    let listening = direct.map_or_else(|| statements.clone(), |direct| named(direct.clone()));
    let statements = match route {
        // A statement is prepared anew in each transaction, so there is nothing to remember.
        Route::Proxied => statements.statement_cache_capacity(0),
        Route::Direct => statements,
    };
    (statements, listening)
}

fn own_pool(connections: u32, route: Route) -> PgPoolOptions {
    let options = PgPoolOptions::new().max_connections(connections).test_before_acquire(false);
    let options = options.before_acquire(|connection, meta| {
        Box::pin(async move {
            if meta.idle_for < RESTED {
                return Ok(true);
            }
            Ok(matches!(tokio::time::timeout(TEST_MAX, connection.ping()).await, Ok(Ok(()))))
        })
    });
    match route {
        // A session setting would leak to other clients.
        Route::Proxied => options,
        Route::Direct => options.after_connect(|connection, _| {
            Box::pin(async move { sqlx::raw_sql(SESSION).execute(connection).await.map(drop) })
        }),
    }
}

/// The fate of a connection after a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterTransaction {
    Reuse,
    Close,
}

enum StatementSession {
    Connection(PooledSession),
    /// Rolled back, unless the statement succeeds.
    Transaction(Transaction<'static, Postgres>),
}

impl StatementSession {
    fn connection(&mut self) -> &mut PgConnection {
        match self {
            Self::Connection(session) => &mut session.connection,
            Self::Transaction(transaction) => transaction,
        }
    }

    /// Ends a statement that failed. In a transaction it certainly had no effect.
    fn end_failed(self, error: &sqlx::Error) {
        if let Self::Connection(mut session) = self {
            retries::note(error);
            if loses_answer(error) {
                session.connection.close_on_drop();
            }
        }
    }
}

/// A connection that is closed when dropped before the end of its transaction.
struct Reading(Option<PoolConnection<Postgres>>);

impl Deref for Reading {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.0.as_ref().expect("the transaction is open")
    }
}

impl DerefMut for Reading {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("the transaction is open")
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}

/// Whether a transaction could not begin since the server is a standby, until it is promoted.
fn is_standby(error: &sqlx::Error) -> bool {
    const FEATURE_NOT_SUPPORTED: &str = "0A000";
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some(FEATURE_NOT_SUPPORTED)
}

/// Each statement sees all earlier commits, independent of the database's default isolation. The lock of a lost session
/// delays the engine only briefly.
pub const READ_COMMITTED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '5s'";

#[cfg(test)]
mod tests {
    use super::super::tests::{database, done};
    use super::*;
    use crate::util::retries::{RETRY_FOR, Retries};

    async fn session_of(sessions: &Sessions) -> i32 {
        let ask = async |session: &mut PgConnection| {
            sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(session).await
        };
        sessions.run(ask).await.unwrap()
    }

    #[tokio::test]
    async fn a_statement_meets_the_session_of_the_one_before_it() {
        let pool = database("warm_sessions").await;
        let sessions = Sessions::new(&pool, 3, &ConnectionSettings::default());
        let first = session_of(&sessions).await;
        // Nothing else has run since, so it has not been given back.
        assert_eq!(session_of(&sessions).await, first);
        sessions.close().await;
        done(pool).await;
    }

    /// The only connection is never idle, and yet each waiting caller gets it in turn.
    #[tokio::test]
    async fn waiting_caller_gets_the_connection_of_a_busy_one() {
        let pool = database("wanted_sessions").await;
        let sessions = Sessions::new(&pool, 1, &ConnectionSettings::default());
        let asked = Arc::new(AtomicUsize::new(0));
        let busy = tokio::spawn({
            let (sessions, asked) = (sessions.clone(), asked.clone());
            async move {
                loop {
                    session_of(&sessions).await;
                    asked.fetch_add(1, Relaxed);
                }
            }
        });
        for _ in 0..20 {
            let before = asked.load(Relaxed);
            sessions.begin().await.unwrap().commit().await.unwrap();
            let overtaken_by = asked.load(Relaxed) - before;
            assert!(overtaken_by < 50, "{overtaken_by} statements went first");
        }
        busy.abort();
        assert!(busy.await.unwrap_err().is_cancelled());
        sessions.close().await;
        done(pool).await;
    }

    #[tokio::test]
    async fn reads_and_other_statements_share_an_only_connection() {
        let pool = database("shared_session").await;
        let sessions = Sessions::new(&pool, 1, &ConnectionSettings::default());
        let read = async || {
            let trial = Retries::new(RETRY_FOR).reading(Some(sessions.read_permits()));
            trial.run(|_| async { Ok(session_of(&sessions).await) }).await.unwrap()
        };
        let (first, second, other) = tokio::join!(read(), read(), session_of(&sessions));
        assert_eq!([first, second], [other, other]);
        sessions.close().await;
        done(pool).await;
    }

    async fn sleep(sessions: &Sessions) -> sqlx::Result<()> {
        let sleep = async |session: &mut PgConnection| {
            sqlx::query("SELECT pg_sleep(600)").execute(session).await.map(drop)
        };
        sessions.run(sleep).await
    }

    async fn until_it_sleeps(pool: &PgPool, expected: bool) {
        let sleeps = "SELECT EXISTS (
            SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')";
        let looks = async {
            loop {
                let sleeps: bool = sqlx::query_scalar(sleeps).fetch_one(pool).await.unwrap();
                if sleeps == expected {
                    return;
                }
            }
        };
        tokio::time::timeout(RETRY_FOR, looks).await.expect("the statement begins and ends");
    }

    /// Begins a read for a client that does not end, does this, and drops the read.
    async fn drop_read(pool: &PgPool, sessions: &Sessions, before: impl FnOnce()) {
        let trial = Retries::new(RETRY_FOR).reading(Some(sessions.read_permits()));
        let mut read = std::pin::pin!(trial.run(|_| sleep(sessions)));
        tokio::select! {
            ended = &mut read => panic!("{ended:?}"),
            () = until_it_sleeps(pool, true) => before(),
        }
    }

    #[tokio::test]
    async fn read_that_is_dropped_ends_its_turn_and_its_statement() {
        let pool = database("dropped_read").await;
        let sessions = Sessions::new(&pool, 1, &ConnectionSettings::default());
        drop_read(&pool, &sessions, || {}).await;
        assert!(sessions.read_permits().permit(RETRY_FOR).await.is_ok());
        session_of(&sessions).await;
        until_it_sleeps(&pool, false).await;
        sessions.close().await;
        done(pool).await;
    }

    #[tokio::test]
    async fn read_that_is_dropped_after_the_close_does_not_delay_it() {
        let pool = database("read_during_close").await;
        let sessions = Sessions::new(&pool, 1, &ConnectionSettings::default());
        let mut closing = None;
        drop_read(&pool, &sessions, || closing = Some(sessions.pool.close())).await;
        let closed = tokio::time::timeout(RETRY_FOR, closing.expect("the read had begun")).await;
        assert!(closed.is_ok(), "the read has a connection");
        done(pool).await;
    }

    #[tokio::test]
    async fn nothing_is_served_once_it_is_closed() {
        let pool = database("closed_sessions").await;
        let sessions = Sessions::new(&pool, 1, &ConnectionSettings::default());
        session_of(&sessions).await;
        let closing = sessions.pool.close();
        let ask = async |session: &mut PgConnection| sqlx::query("SELECT 1").execute(session).await;
        assert!(matches!(sessions.run(ask).await, Err(sqlx::Error::PoolClosed)));
        closing.await;
        done(pool).await;
    }

    #[tokio::test]
    async fn failed_connection_is_not_kept() {
        let pool = database("failed_sessions").await;
        let sessions = Sessions::new(&pool, 1, &ConnectionSettings::default());
        let end = async |session: &mut PgConnection| {
            sqlx::query("SELECT pg_terminate_backend(pg_backend_pid())").execute(session).await
        };
        assert!(sessions.run(end).await.is_err());
        session_of(&sessions).await;
        sessions.close().await;
        done(pool).await;
    }
}
