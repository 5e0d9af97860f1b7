//! Runs a future to completion even if its caller is cancelled.

use crate::util::retries::carried;

/// Awaits the work in a task of its own, so that dropping this future does not cancel it. So a connection never
/// returns to its pool in the middle of a transaction, and the work after a commit is always done.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = sqlx::Result<T>> + Send + 'static,
) -> sqlx::Result<T> {
    tokio::spawn(carried(work)).await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}
