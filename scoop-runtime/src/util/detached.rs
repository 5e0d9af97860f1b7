//! Runs a future to completion even if its caller is cancelled.

use crate::util::retries::carried;

/// Awaits the work in a task of its own, so that dropping this future does not cancel it. So a connection never
/// returns to its pool in the middle of a transaction, and the work after a commit is always done.
pub async fn run_to_completion<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<sqlx::Error> + Send + 'static,
{
    tokio::spawn(carried(work)).await.unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()))
}
