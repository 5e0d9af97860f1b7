//! Rebuilds the working set from the protocol's tables, after it was damaged or lost.

use futures_util::FutureExt;

use super::scoop::Scoop;
use crate::util::patience::GivenUp;
use crate::{RebuildComparison, RebuildReport, RunDifference, RuntimeError};

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
                .map_err(GivenUp::error("the working set was rebuilt"))?
                .map_err(|workers| RuntimeError::WorkersAlive { workers })
        }
        .boxed()
    }

    /// Compares the working set with the recorded events, and calls a function with each run that a
    /// [rebuild](Self::rebuild_working_set) would change, hierarchy by hierarchy. Changes nothing.
    ///
    /// Programs can run sagas meanwhile: events and working set are those of one moment. No lock is taken that any of their
    /// statements waits for. But the vacuum of the server removes no row that was deleted after that moment, until the end of
    /// the call. It reads what a rebuild reads, and the working set; up to some 1,000 runs, or those of one hierarchy, are in
    /// memory at a time.
    ///
    /// What a rebuild may change is no difference: the workers of runs, the number of attempts and the pauses between
    /// them, the reasons of stuck runs, and the ids of pending ones. A hierarchy whose events cannot be read is one of
    /// [`RebuildComparison::skipped`].
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// let compared = scoop.compare_working_set(|difference| println!("{difference}")).await?;
    /// println!("{} of {} runs differ", compared.different, compared.before);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn compare_working_set(
        &self,
        mut on_difference: impl FnMut(RunDifference) + Send,
    ) -> Result<RebuildComparison, RuntimeError> {
        let mut trial = self.trial().once();
        let compared = loop {
            let attempt = self.store().compare_with_record(&mut on_difference);
            if let Some(compared) = trial.attempt(attempt).await {
                break compared;
            }
        };
        compared.map_err(GivenUp::error("the working set was compared with the record"))
    }
}
