//! Checks where the connections lead, before anything depends on them.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use uuid::Uuid;

use super::Sessions;
use super::migrate::unfit_server;
use super::query_ext::FetchExt;
use crate::{RuntimeError, SetupError};

/// How often to check whether a connection keeps its session. Each check detects a proxy that has no other client at
/// that moment.
const PROBES: usize = 8;

/// The limit for learning why a connection is refused.
const REFUSAL_MAX: Duration = Duration::from_secs(5);

/// Checks the version of the server, the encoding of the database, and all connections, and reports every mistake. The listening connection has to keep one
/// session of the server, and all others have to lead to the same database. Those of the user must not rely on prepared
/// statements that a proxy deallocates.
///
/// Opens all connections that the program needs at once, so that a server that allows fewer refuses the start.
pub(crate) async fn check(users: &PgPool, sessions: &Sessions) -> Result<(), RuntimeError> {
    let database = RuntimeError::database;
    let opened = open_all(users, sessions).await;
    let (mut listening, mut second, others) = opened.map_err(database("the connections were opened"))?;
    let is_same = is_same_session(&mut listening, &mut second).await;
    let is_same = is_same.map_err(database("the listening connection was checked"))?;
    // From here on, the sessions open connections of their own.
    close(others.into_iter().chain([second])).await;
    let mut mistakes = vec![];
    if is_same {
        mistakes.push(SetupError::SharedSession);
    } else {
        let one = same_database(&mut listening, sessions).await;
        if !one.map_err(database("connections were compared"))? {
            // A lock of a shared session does not belong to one client.
            mistakes.push(SetupError::DatabaseMismatch);
        }
    }
    let remembers = !sessions.supports_prepared()
        && caches_statements(users).await.map_err(database("the pool for steps was checked"))?;
    if remembers {
        mistakes.push(SetupError::StatementCacheEnabled);
    }
    let unfit = unfit_server(&mut listening).await;
    mistakes.extend(unfit.map_err(database("the version of the server was looked up"))?);
    close([listening]).await;
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes.into()) }
}

/// A limit of the role or of the database that is lower than the number of connections which the program opens under load:
/// as many as its pool allows, those of the engine among them. The steps could then take all of them, and leave the engine none.
pub(crate) async fn low_limit(users: &PgPool, sessions: &Sessions) -> sqlx::Result<Option<SetupError>> {
    if !sessions.supports_prepared() {
        // The limit of the proxy counts.
        return Ok(None);
    }
    let required = users.options().get_max_connections();
    let limits = "
        SELECT of, max FROM pg_catalog.pg_roles r CROSS JOIN pg_catalog.pg_database d CROSS JOIN LATERAL (VALUES
            ('role `' OPERATOR(pg_catalog.||) rolname OPERATOR(pg_catalog.||) '`', rolconnlimit),
            ('database `' OPERATOR(pg_catalog.||) datname OPERATOR(pg_catalog.||) '`', datconnlimit)) AS l (of, max)
        WHERE rolname OPERATOR(pg_catalog.=) session_user AND NOT rolsuper
          AND datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
          AND max OPERATOR(pg_catalog.>=) 0 AND max OPERATOR(pg_catalog.<) $1
        ORDER BY max LIMIT 1";
    let lowest = sqlx::query_as(limits).bind(i64::from(required)).first(sessions).await?;
    Ok(lowest.map(|(of, limit): (String, i32)| SetupError::ConnectionLimit { of, limit, required }))
}

/// Opens two connections like the listening one, of which the second stands for a connection for statements; the other
/// connections for statements; and one of the user's pool, which is returned to it.
async fn open_all(
    users: &PgPool,
    sessions: &Sessions,
) -> sqlx::Result<(PgConnection, PgConnection, Vec<PgConnection>)> {
    let listening = sessions.listening().connect_options();
    let first = PgConnection::connect_with(&listening).await?;
    let second = PgConnection::connect_with(&listening).await?;
    let mut others = vec![];
    open(&mut others, &sessions.connect_options(), sessions.connections() - 1).await?;
    // The last one, as it may wait for its pool.
    users.acquire().await.map(drop)?;
    Ok((first, second, others))
}

/// The error of the server, or of the network, for one of so many new connections. They are open at the same time, as
/// those of a program are, since a limit may allow some of them.
pub(crate) async fn refusal(options: &PgConnectOptions, connections: u32) -> Option<sqlx::Error> {
    let mut opened = vec![];
    let refused = tokio::time::timeout(REFUSAL_MAX, open(&mut opened, options, connections)).await;
    close(opened).await;
    refused.ok()?.err()
}

async fn open(
    opened: &mut Vec<PgConnection>,
    options: &PgConnectOptions,
    connections: u32,
) -> sqlx::Result<()> {
    for _ in 0..connections {
        opened.push(PgConnection::connect_with(options).await?);
    }
    Ok(())
}

async fn close(opened: impl IntoIterator<Item = PgConnection>) {
    for connection in opened {
        // Its result does not matter.
        let _ = connection.close().await;
    }
}

/// Whether a session of the server is handed to another client while a connection has no transaction
/// open. That shows when one connection meets several sessions, or two meet the same one. While the
/// second holds a transaction, the first has to get another session if it had that one.
async fn is_same_session(asking: &mut PgConnection, holding: &mut PgConnection) -> sqlx::Result<bool> {
    let session = session_of(asking).await?;
    for _ in 0..PROBES {
        let mut opened = holding.begin().await?;
        // In this order: where there is one session in all, the first would wait for the second.
        let mut shared = session_of(&mut opened).await? == session || session_of(asking).await? != session;
        opened.rollback().await?;
        // Two queries: with one, a proxy that hands out two sessions in turns gives each connection the same in each
        // round.
        shared |= session_of(asking).await? != session || session_of(asking).await? != session;
        if shared {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The process of the server that answers.
async fn session_of(connection: &mut PgConnection) -> sqlx::Result<i32> {
    // Never a prepared statement: it would meet another session than the one that prepared it.
    let row = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?;
    sqlx::Row::try_get(&row, 0)
}

/// Whether the other connections see a lock of the listening session: by such a lock, workers notice each other's
/// death.
async fn same_database(listening: &mut PgConnection, sessions: &Sessions) -> sqlx::Result<bool> {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    let key = i64::from_ne_bytes(random.to_ne_bytes());
    // Safe: the key is a number.
    let lock = AssertSqlSafe(format!("SELECT pg_advisory_lock({key})"));
    sqlx::raw_sql(lock).execute(&mut *listening).await?;
    let is_free: bool =
        sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)").bind(key).one(sessions).await?;
    let unlock = AssertSqlSafe(format!("SELECT pg_advisory_unlock({key})"));
    sqlx::raw_sql(unlock).execute(&mut *listening).await?;
    Ok(!is_free)
}

/// Whether connections of this pool rely on statements that they prepared before.
async fn caches_statements(pool: &PgPool) -> sqlx::Result<bool> {
    let mut transaction = pool.begin_with("BEGIN; DEALLOCATE ALL").await?;
    sqlx::query("SELECT 1").execute(&mut *transaction).await?;
    let remembered = transaction.cached_statements_size();
    transaction.rollback().await?;
    Ok(remembered > 0)
}
