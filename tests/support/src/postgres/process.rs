//! A process that dies.

use scoop::{Builder, Result, Scoop};
use sqlx::postgres::PgPoolOptions;

use super::Database;

/// Runs `life` with a program in a runtime of its own, which then is gone in the middle of its
/// work.
pub async fn in_a_process_that_dies<T: Send + 'static, F>(
    db: &Database,
    life: impl FnOnce(Builder) -> F + Send + 'static,
) -> Result<T>
where
    F: Future<Output = Result<(Scoop, T)>> + Send + 'static,
{
    let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let options = db.pool().connect_options();
    let result = doomed.spawn(async move {
        let pool = PgPoolOptions::new().max_connections(5).connect_with((*options).clone()).await?;
        let (scoop, result) = life(Scoop::builder().postgres(pool)).await?;
        // Dropping the handle would be a shutdown.
        std::mem::forget(scoop);
        Ok(result)
    });
    let result = result.await?;
    doomed.shutdown_background();
    result
}
