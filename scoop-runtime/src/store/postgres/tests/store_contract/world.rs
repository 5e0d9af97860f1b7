//! Influences on a store from outside: ended sessions, lost connections, passing time.

use std::sync::Arc;
use std::time::Duration;

use scoop_core::{Context, EventKind};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Row};
use uuid::Uuid;

use super::{ENTRIES, Error, Noted};
use crate::store::{MemorySession, MemoryStore, PostgresStore, Registered, Store};

/// Access to a store from outside.
pub(super) enum Outside {
    Postgres(Server),
    Memory(MemoryStore),
}

/// The session that marks a worker as alive.
pub(super) enum Session {
    Postgres { _connection: PgConnection, process: i32 },
    Memory(Option<MemorySession>),
}

impl Outside {
    pub(super) fn store(&self) -> Store {
        match self {
            Self::Postgres(server) => Store::Postgres(server.tables.clone()),
            Self::Memory(memory) => Store::Memory(memory.clone()),
        }
    }

    /// Registers a worker for as long as the session lasts.
    pub(super) async fn enlist(&self, worker: Uuid) -> sqlx::Result<Session> {
        match self {
            Self::Postgres(server) => {
                let (connection, process) = server.enlist(worker).await?;
                Ok(Session::Postgres { _connection: connection, process })
            }
            Self::Memory(memory) => {
                let (session, ..) = memory.open_session(of_nothing(worker)).await?;
                Ok(Session::Memory(Some(session)))
            }
        }
    }

    /// Ends a session, as the death of its process would.
    pub(super) async fn end(&self, session: &mut Session) {
        match (self, session) {
            (Self::Postgres(server), Session::Postgres { process, .. }) => server.end(*process).await,
            (_, Session::Memory(session)) => drop(session.take()),
            (Self::Memory(_), Session::Postgres { .. }) => unreachable!("it was opened elsewhere"),
        }
    }

    /// Executes an operation that loses its connection when it reaches this table, if there are connections.
    pub(super) async fn interrupted<T>(
        &self,
        locks: &str,
        operation: impl Future<Output = sqlx::Result<T>>,
    ) -> Error {
        match self {
            Self::Postgres(server) => server.interrupted(locks, operation).await,
            Self::Memory(_) => Error::Unanswered,
        }
    }

    /// All entries, in the order of their events.
    pub(super) async fn noted(&self) -> sqlx::Result<Vec<Noted>> {
        match self {
            Self::Postgres(server) => server.noted().await,
            Self::Memory(memory) => {
                let log = memory.event_log().into_iter();
                let emitted = log.filter(|event| event.topic == ENTRIES && event.kind == EventKind::Emitted);
                Ok(emitted.map(|event| noted(&event.context)).collect())
            }
        }
    }

    /// Advances the clock of runs. Returns by how much the store's own clock is later.
    pub(super) async fn advance(&self, by: Duration) -> Duration {
        match self {
            Self::Postgres(server) => {
                server.advance(by).await;
                Duration::ZERO
            }
            Self::Memory(memory) => {
                memory.advance(by);
                by
            }
        }
    }
}

/// The entry that travels with an event.
fn noted(context: &Context) -> Noted {
    context.get::<Noted>().unwrap().expect("it was written by us")
}

/// PostgreSQL.
pub(super) struct Server {
    pub(super) pool: PgPool,
    pub(super) tables: Arc<PostgresStore>,
}

/// A worker of no handlers.
fn of_nothing(worker: Uuid) -> Registered<'static> {
    Registered {
        worker,
        topics: &[],
        handlers: &[],
        definitions: &[],
        started_at: None,
        program: super::super::NO_PROGRAM,
    }
}

impl Server {
    /// Registers a worker for as long as the session lasts.
    async fn enlist(&self, worker: Uuid) -> sqlx::Result<(PgConnection, i32)> {
        let options = self.pool.connect_options();
        let mut connection = PgConnection::connect_with(&options).await?;
        let (_, random) = worker.as_u64_pair();
        let lock = i64::from_ne_bytes(random.to_ne_bytes());
        let pid = sqlx::query_scalar("SELECT pg_backend_pid() FROM pg_advisory_lock($1)").bind(lock);
        let process = pid.fetch_one(&mut connection).await?;
        self.tables.register_on(&mut connection, lock, of_nothing(worker)).await?;
        Ok((connection, process))
    }

    /// Ends a session, as the death of its process would. A process that is gone from the list of sessions has no locks
    /// any more.
    async fn end(&self, process: i32) {
        let terminate = sqlx::query("SELECT pg_terminate_backend($1)").bind(process);
        terminate.execute(&self.pool).await.unwrap();
        let lives = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)";
        while sqlx::query_scalar(lives).bind(process).fetch_one(&self.pool).await.unwrap() {}
    }

    /// Executes an operation that loses its connection when it reaches this table.
    async fn interrupted<T>(&self, locks: &str, operation: impl Future<Output = sqlx::Result<T>>) -> Error {
        let mut lock = self.pool.begin().await.unwrap();
        let statement = AssertSqlSafe(format!("LOCK TABLE scoop.{locks} IN ACCESS EXCLUSIVE MODE"));
        sqlx::raw_sql(statement).execute(&mut *lock).await.unwrap();
        let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                         WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let losing = async {
            loop {
                sqlx::query(terminate).execute(&self.pool).await.unwrap();
            }
        };
        let answer = tokio::select! {
            answer = operation => answer,
            () = losing => unreachable!("there is no end of it"),
        };
        lock.rollback().await.unwrap();
        // An operation that does not use that table changes nothing: no worker was dead, or the time was known.
        answer.err().map_or(Error::Unanswered, Error::Database)
    }

    /// All entries, in the order of their events.
    async fn noted(&self) -> sqlx::Result<Vec<Noted>> {
        let read = "SELECT e.context FROM scoop.message_event e JOIN scoop.message m ON m.id = e.message_id
                    WHERE m.topic = $1 AND e.type = 'EMITTED' ORDER BY e.created_at";
        let rows = sqlx::query(read).bind(ENTRIES).fetch_all(&self.pool).await?;
        let read = |row: &sqlx::postgres::PgRow| {
            let context: sqlx::types::Json<Context> = row.try_get("context")?;
            Ok(noted(&context))
        };
        rows.iter().map(read).collect()
    }

    /// Moves the times back at which runs become ready.
    async fn advance(&self, by: Duration) {
        let back = "UPDATE scoop.run SET ready_at = ready_at - make_interval(secs => $1)";
        sqlx::query(back).bind(by.as_secs_f64()).execute(&self.pool).await.unwrap();
    }

    /// Deletes all rows.
    pub(super) async fn empty(&self) {
        let tables = ["run", "return_value", "message_event", "message", "worker"];
        let delete = tables.map(|table| format!("DELETE FROM scoop.{table};")).concat();
        sqlx::raw_sql(AssertSqlSafe(delete)).execute(&self.pool).await.unwrap();
    }
}
