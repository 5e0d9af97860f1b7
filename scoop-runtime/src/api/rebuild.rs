//! Rebuilds the working set from the protocol's tables, after it was damaged or lost.

use futures_util::FutureExt;

use super::scoop::Scoop;
use crate::util::patience::Vain;
use crate::{RebuildReport, RuntimeError};

impl Scoop {
    /// Rebuilds the working set (the table `run`, the next work of each run) from the recorded events. A
    /// [client](Scoop::client) calls it while no process runs sagas, after the table was damaged or lost, or to
    /// verify it.
    ///
    /// The progress of each run, its waits and its cancellation are preserved. The number of attempts, the pauses
    /// between them, and the reasons of [stuck](Scoop::stuck_runs) runs are lost: stuck runs are retried once.
    ///
    /// The call reads the events of the unfinished hierarchies, in one transaction; of the others only ids and names,
    /// in indexes. A launch meanwhile waits for its end.
    ///
    /// A hierarchy whose events cannot be read, or whose runs the database refuses, keeps its runs and is one of
    /// [`RebuildReport::skipped`]; all others are rebuilt. The rebuild then takes twice the time.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::WorkersAlive`] if any process runs sagas; or if the database fails. The working set is then
    /// unchanged.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the rebuild has completed or has changed nothing.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), RuntimeError> {
    /// let rebuild = Scoop::client(pool).rebuild_working_set().await?;
    /// println!("{} runs were unfinished, {} are", rebuild.before, rebuild.after);
    /// for skipped in rebuild.skipped {
    ///     println!("not rebuilt: {}, {}", skipped.hierarchy, skipped.reason);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn rebuild_working_set(&self) -> impl Future<Output = Result<RebuildReport, RuntimeError>> + Send {
        async move {
            let rebuilt = self.trial().once().endure(|_| self.store().rebuild()).await;
            rebuilt
                .map_err(Vain::error("the working set was rebuilt"))?
                .map_err(|workers| RuntimeError::WorkersAlive { workers })
        }
        .boxed()
    }
}
