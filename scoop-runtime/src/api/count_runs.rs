//! Counts of runs.

use std::future::IntoFuture;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};

use crate::find::CountLimits;
use crate::util::format::system_time;
use crate::util::patience::GivenUp;
use crate::{RunCounts, RunPosition, RuntimeError, Scoop, When};

/// The time in which ends are counted by default.
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// The maximum count of unfinished runs of a saga in a state: each is read.
const UNFINISHED_MAX: usize = 10_000;

/// The maximum count of ends of a kind: entries of an index.
const ENDS_MAX: usize = 100_000;

/// Runs about to be counted. Await it for [`RunCounts`].
#[must_use = "nothing is counted before this is awaited"]
#[derive(Clone)]
pub struct CountRuns {
    scoop: Scoop,
    since: Option<SystemTime>,
    is_exact: bool,
    sagas: Option<usize>,
}

impl CountRuns {
    /// Counts the ends of runs since this time, by the clock of the server; by default in the last hour.
    pub fn since(mut self, time: SystemTime) -> Self {
        self.since = Some(time);
        self
    }

    /// Counts all runs, without a limit. The cost grows with their number: a million unfinished ones take some seconds.
    pub fn exact(mut self) -> Self {
        self.is_exact = true;
        self
    }

    /// Sets the maximum number of sagas: in each state the runs of those are counted whose names come first. The cost grows with
    /// their number. By default the runs of all are counted. [`RunCounts::is_complete`] says whether some may be left out.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// let counts = scoop.counts().sagas(100).await?;
    /// println!("{} counts, all of them: {}", counts.unfinished.len(), counts.is_complete);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sagas(mut self, sagas: usize) -> Self {
        self.sagas = Some(sagas);
        self
    }

    async fn read(self) -> Result<RunCounts, RuntimeError> {
        let scoop = &self.scoop;
        let now =
            scoop.patiently(|_| scoop.store().now()).await.map_err(GivenUp::error("the clock was read"))?;
        let since = match self.since {
            Some(since) => When::At(since).instant(now.latest)?,
            None => now.latest - WINDOW,
        };
        let limits = |runs| CountLimits { runs: (!self.is_exact).then_some(runs), sagas: self.sagas };
        // One after the other: an exact count may take longer than the patience, for which the other one would wait for a turn.
        let unfinished = scoop.read_patiently(|_| scoop.store().unfinished_counts(limits(UNFINISHED_MAX)));
        let unfinished = unfinished.await.map_err(GivenUp::error("runs were counted"))?;
        let finished = scoop.read_patiently(|_| scoop.store().finished_counts(since, limits(ENDS_MAX)));
        let finished = finished.await.map_err(GivenUp::error("runs were counted"))?;
        Ok(RunCounts {
            is_complete: unfinished.is_complete && finished.is_complete,
            unfinished: unfinished.counts,
            finished: finished.counts,
            since: system_time(since),
            read_at: system_time(now.latest),
        })
    }
}

impl IntoFuture for CountRuns {
    type Output = Result<RunCounts, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

impl Scoop {
    /// Counts runs by saga and state: unfinished ones, those whose rollback failed, and the ends of the last hour. Await it for
    /// [`RunCounts`].
    ///
    /// The cost does not grow with the number of runs, since counting stops at a limit: 10,000 unfinished runs of a saga in
    /// a state (sleeping ones do not hide those that are due), and 100,000 ends of each kind.
    /// [`RunCount::is_capped`](crate::RunCount::is_capped) says so, and [`exact`](CountRuns::exact) counts all.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Time`] if the time is outside the years 1 to 9999; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, RunPhase, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// let counts = scoop.counts().await?;
    /// println!("{} runs are stuck", counts.unfinished_in(RunPhase::Stuck));
    /// println!("{:.1} commits a second", counts.per_second(RunPhase::Committed));
    /// # Ok(())
    /// # }
    /// ```
    pub fn counts(&self) -> CountRuns {
        CountRuns { scoop: self.clone(), since: None, is_exact: false, sagas: None }
    }

    /// Counts the unfinished runs of these sagas by the step after which they are, with the steps that their definition had. Up
    /// to 10,000 runs of each saga in a state are counted.
    ///
    /// [`Definition::strands_after`](scoop_core::Definition::strands_after) says of such a place whether another definition of
    /// the saga can continue there.
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
    /// for place in scoop.run_positions(&["checkout".to_owned()]).await? {
    ///     println!("{} runs are after {:?}", place.count, place.step);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_positions(&self, sagas: &[String]) -> Result<Vec<RunPosition>, RuntimeError> {
        let read = self.read_patiently(|_| self.store().run_positions(sagas, UNFINISHED_MAX));
        read.await.map_err(GivenUp::error("runs were counted"))
    }
}
