//! The session that shows that a process lives, and receives notifications.

use sqlx::Acquire;
use sqlx::postgres::PgListener;
use time::OffsetDateTime;

use super::PostgresStore;
use crate::model::handlers::GoneHandler;
use crate::store::Registered;
use crate::telemetry;
use crate::util::ids;

/// Makes the server check a silent client: the loss of a host is noticed after about eleven seconds, also if a
/// notification to it is not acknowledged, since keepalives are not sent then. No effect on a Unix socket, where the
/// kernel reports the end of a process at once.
const KEEPALIVES: &str = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; \
    SET tcp_user_timeout = '11s'";

/// A session with an advisory lock of its own, which the server frees with the session.
pub(crate) struct PostgresSession {
    pub(super) listener: PgListener,
    lock_key: i64,
}

impl PostgresSession {
    /// Registers the worker of this session, and notifies the other workers. Returns when the worker started, and the
    /// handlers that were retired since the program does not have them.
    pub(crate) async fn register(
        &mut self,
        tables: &PostgresStore,
        registered: Registered<'_>,
    ) -> sqlx::Result<(OffsetDateTime, Vec<GoneHandler>)> {
        let mut tx = self.listener.begin().await?;
        tables.lock_topology(&mut tx).await?;
        let started_at = tables.register_on(&mut tx, self.lock_key, registered).await?;
        let retired = tables.own_handlers(&mut tx, registered).await?;
        tables.reconsider(&mut tx, registered.handlers).await?;
        tables.notification(registered.worker).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok((started_at, retired))
    }

    /// Frees the lock: the connection goes back to a pool that outlives the engine.
    pub(crate) async fn close(mut self) {
        let unlock = sqlx::query("SELECT pg_advisory_unlock_all()");
        if let Err(error) = unlock.execute(&mut self.listener).await {
            telemetry::session_gone(&error);
        }
    }
}

impl PostgresStore {
    pub(crate) async fn open_session(&self) -> sqlx::Result<PostgresSession> {
        let mut listener = PgListener::connect_with(self.sessions.listening()).await?;
        // The lock has to be taken before anything else, so the reconnect is done here.
        listener.eager_reconnect(false);
        sqlx::raw_sql(KEEPALIVES).execute(&mut listener).await?;
        let lock_key = lock_key();
        sqlx::query("SELECT pg_advisory_lock($1)").bind(lock_key).execute(&mut listener).await?;
        Ok(PostgresSession { listener, lock_key })
    }
}

/// The random half of a fresh UUID: two processes never draw the same.
fn lock_key() -> i64 {
    let (_, random) = ids::now_v7().as_u64_pair();
    i64::from_ne_bytes(random.to_ne_bytes())
}
