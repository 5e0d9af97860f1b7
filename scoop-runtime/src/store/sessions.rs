//! The connections of the engine and of clients: those for statements, and the one that listens.
//!
//! They lead to the server itself, or through a proxy that hands out its sessions of the server
//! transaction by transaction (PgBouncer with `pool_mode = transaction`). Behind such a proxy the two
//! halves of one statement, preparing and executing it, may meet two sessions, and a setting or a
//! prepared statement stays behind for whoever comes next. So there each statement has a transaction
//! around it, which brings its settings along and begins by forgetting what others have prepared. The
//! session that listens, and shows by a lock that this process lives, always leads to the server itself.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Transaction};

use crate::uninterrupted::uninterrupted;

/// What our own sessions must not inherit from a role or a database: whatever ends a statement or a
/// session for having taken long. And they keep to the one plan that serves all calls of a statement:
/// left to itself, the server sometimes plans anew for each, which halves the rate. That plan goes along
/// the indexes, in their order: a plan that was made when there was little to read, and reads all of it
/// to sort it, goes on being used when there is much.
pub(super) const SESSION: &str = "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_session_timeout = 0; \
    SET idle_in_transaction_session_timeout = 0; SET default_transaction_isolation = 'read committed'; \
    SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off";

/// The same for a transaction behind a proxy. What waits for locks is said by whoever begins it.
const TRANSACTION: &str = "DEALLOCATE ALL; SET LOCAL statement_timeout = 0; \
    SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL plan_cache_mode = force_generic_plan; \
    SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off";

/// How a transaction begins that may wait for locks.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 0";

/// There is never more than one in use, but one that was lost may take a while to be given up.
const LISTENING_CONNECTIONS_MAX: u32 = 2;

/// Connections for us alone. In the user's pool a connection may be left in the middle of
/// a transaction (sqlx does not notice if a `begin` is cancelled while its answer is under way),
/// and whatever ran on it then would never be committed.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    pool: PgPool,
    listening: PgPool,
    route: Route,
}

/// How statements get to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Direct,
    Proxied,
}

/// How the user's pool gets to the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// Through a proxy that pools transactions.
    pub(crate) behind_proxy: bool,
    /// How to get to the server itself, if not the way of the pool.
    pub(crate) direct: Option<PgConnectOptions>,
}

impl Sessions {
    /// So many connections, and one that listens. None is made before it is needed.
    pub(crate) fn new(users: &PgPool, connections: u32, access: &Access) -> Self {
        let options = (*users.connect_options()).clone();
        let direct = access.direct.clone().unwrap_or_else(|| options.clone());
        let listening = own_pool(LISTENING_CONNECTIONS_MAX, Route::Direct).connect_lazy_with(direct);
        let (route, options) = match access.behind_proxy {
            // A statement is prepared anew in each transaction, so there is nothing to remember.
            true => (Route::Proxied, options.statement_cache_capacity(0)),
            false => (Route::Direct, options),
        };
        Self { pool: own_pool(connections, route).connect_lazy_with(options), listening, route }
    }

    /// Runs a single statement, in a transaction of its own.
    ///
    /// Behind a proxy nothing is done if the future is dropped before the end; otherwise the server
    /// may come to that end by itself.
    pub(crate) async fn run<T>(
        &self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>,
    ) -> sqlx::Result<T> {
        match self.lend().await? {
            Lent::Connection(mut connection) => statement(&mut connection).await,
            Lent::Transaction(mut transaction) => {
                let answer = statement(&mut transaction).await?;
                transaction.commit().await?;
                Ok(answer)
            }
        }
    }

    /// A connection to read from, with one statement after another, each of which sees what was
    /// committed before it.
    pub(crate) async fn lend(&self) -> sqlx::Result<Lent> {
        Ok(match self.route {
            Route::Direct => Lent::Connection(self.pool.acquire().await?),
            Route::Proxied => Lent::Transaction(self.begin().await?),
        })
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        self.begin_with(BEGIN).await
    }

    /// Begins a transaction by these statements.
    pub(crate) async fn begin_with(
        &self,
        begin: &'static str,
    ) -> sqlx::Result<Transaction<'static, Postgres>> {
        let begin = match self.route {
            Route::Direct => begin.to_owned(),
            Route::Proxied => format!("{begin}; {TRANSACTION}"),
        };
        // Safe: all of it is constant.
        let (pool, begin) = (self.pool.clone(), AssertSqlSafe(begin));
        uninterrupted(async move { pool.begin_with(begin).await }).await
    }

    /// What a transaction on a connection of the user has to begin with, apart from `BEGIN`, for
    /// statements to be prepared in it: nothing, or a statement.
    pub(crate) fn preamble(&self) -> &'static str {
        match self.route {
            Route::Direct => "",
            Route::Proxied => "DEALLOCATE ALL; ",
        }
    }

    /// Whether a session keeps what is prepared in it.
    pub(crate) fn keeps_statements(&self) -> bool {
        self.route == Route::Direct
    }

    /// The connection that listens.
    pub(crate) fn listening(&self) -> &PgPool {
        &self.listening
    }

    /// Closes all of them.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
        self.listening.close().await;
    }
}

fn own_pool(connections: u32, route: Route) -> PgPoolOptions {
    let options = PgPoolOptions::new().max_connections(connections).test_before_acquire(false);
    match route {
        // What is set in a session would stay there for others.
        Route::Proxied => options,
        Route::Direct => options.after_connect(|connection, _| {
            Box::pin(async move { sqlx::raw_sql(SESSION).execute(connection).await.map(drop) })
        }),
    }
}

/// A connection for a while.
pub(crate) enum Lent {
    Connection(PoolConnection<Postgres>),
    /// Rolled back in the end.
    Transaction(Transaction<'static, Postgres>),
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Connection(connection) => connection,
            Self::Transaction(transaction) => transaction,
        }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Connection(connection) => connection,
            Self::Transaction(transaction) => transaction,
        }
    }
}
