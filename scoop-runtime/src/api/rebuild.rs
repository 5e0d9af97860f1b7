//! Rebuilds the working set from the protocol's tables, after it was damaged or lost.

use std::future::IntoFuture;

use futures_util::future::{BoxFuture, FutureExt};

use super::scoop::Scoop;
use crate::util::patience::GivenUp;
use crate::{
    FailedRollbackComparison, RebuildComparison, RebuildProgress, RebuildReport, RunDifference, RuntimeError,
};

/// A function that is called with the progress of a rebuild.
type OnProgress = Box<dyn FnMut(RebuildProgress) + Send>;

/// A rebuild of the working set. Await it for a [`RebuildReport`].
#[must_use = "nothing is rebuilt before this is awaited"]
pub struct RebuildWorkingSet {
    scoop: Scoop,
    on_progress: OnProgress,
}

impl RebuildWorkingSet {
    /// Sets a function that is called after each hierarchy. If one cannot be rebuilt, a second pass begins with the first
    /// hierarchy again.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let rebuild = scoop.rebuild_working_set();
    /// rebuild.on_progress(|so_far| println!("{} of {}", so_far.hierarchies, so_far.total)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_progress(mut self, report: impl FnMut(RebuildProgress) + Send + 'static) -> Self {
        self.on_progress = Box::new(report);
        self
    }

    async fn carry_out(mut self) -> Result<RebuildReport, RuntimeError> {
        let mut trial = self.scoop.trial().once();
        let rebuilt = loop {
            let attempt = self.scoop.store().rebuild(&mut *self.on_progress);
            if let Some(rebuilt) = trial.attempt(attempt).await {
                break rebuilt;
            }
        };
        rebuilt
            .map_err(GivenUp::error("the working set was rebuilt"))?
            .map_err(|workers| RuntimeError::WorkersAlive { workers })
    }
}

impl IntoFuture for RebuildWorkingSet {
    type Output = Result<RebuildReport, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.carry_out().boxed()
    }
}

impl Scoop {
    /// Rebuilds the working set (the table `run`, the next work of each run) from the recorded events, and with it the list of
    /// [failed rollbacks](Scoop::failed_compensations) (the table `rollback_failure`). A
    /// [client](Scoop::client) calls it while no process runs sagas, after the table was damaged or lost, or to
    /// verify it. Await it; [`RebuildWorkingSet`] has a method that reports the progress.
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
    pub fn rebuild_working_set(&self) -> RebuildWorkingSet {
        RebuildWorkingSet { scoop: self.clone(), on_progress: Box::new(|_| ()) }
    }

    /// Compares the working set with the recorded events, and calls a function with each run that a
    /// [rebuild](Self::rebuild_working_set) would change, hierarchy by hierarchy, and then with each failed rollback whose place
    /// in the list of these it would change. Changes nothing.
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
    /// println!("{} differences, {} unfinished runs", compared.different, compared.before);
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

    /// Compares the list of failed rollbacks, which operators see, with the recorded events. Compared are the newest 10,000 of the
    /// list, and 10,000 recorded ones: the newest of each saga, as many of each, of the first 1,000 sagas. Of the newest 10,000
    /// repeated failures, those that do not fit the record are returned, too. Changes nothing, and takes no locks.
    /// [`compare_working_set`](Self::compare_working_set) compares all failed rollbacks, and a
    /// [rebuild](Self::rebuild_working_set) also rebuilds the list.
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
    /// for difference in scoop.compare_failed_rollbacks().await?.different {
    ///     println!("{difference}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn compare_failed_rollbacks(&self) -> Result<FailedRollbackComparison, RuntimeError> {
        let compared = self.read_patiently(|_| self.store().compare_failed_rollbacks()).await;
        compared.map_err(GivenUp::error("the list of failed rollbacks was compared with the record"))
    }
}
