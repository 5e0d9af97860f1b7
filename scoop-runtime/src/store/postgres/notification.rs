//! Notifications between processes: the payload is their sender. They are hints: a process that misses one polls.

use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use uuid::Uuid;

use super::PostgresStore;
use super::session::PostgresSession;

/// The sender in the notification that a program without the right to deliver has sent a signal.
pub(crate) const SIGNAL_SENT: Uuid = Uuid::max();

impl PostgresStore {
    pub(super) fn notification(&self, sender: Uuid) -> Query<'_, Postgres, PgArguments> {
        sqlx::query("SELECT pg_notify($1, $2)").bind(&self.sql.channel).bind(sender.to_string())
    }
}

impl PostgresSession {
    /// Subscribes to the notifications of the processes.
    pub(crate) async fn listen(&mut self, tables: &PostgresStore) -> sqlx::Result<()> {
        self.listener.listen(&tables.sql.channel).await
    }

    /// Waits for a notification, and returns its sender; `None` if the session is gone.
    pub(crate) async fn hear(&mut self) -> Option<Uuid> {
        let notification = self.listener.try_recv().await.ok()??;
        // Any role may notify, with any text: as another process.
        Some(notification.payload().parse().unwrap_or_default())
    }
}
