//! Runs what must not be stopped half-way, whatever becomes of whoever waits for it.

use crate::patience::carried;

/// Awaits this in a task of its own, so that nobody can cancel it. Whoever stops waiting leaves it to come to its end
/// alone: a connection does not go back to its pool in the middle of a transaction that nobody knows of, and what
/// has to follow a commit does.
pub(crate) async fn uninterrupted<T: Send + 'static>(
    work: impl Future<Output = sqlx::Result<T>> + Send + 'static,
) -> sqlx::Result<T> {
    tokio::spawn(carried(work)).await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}
