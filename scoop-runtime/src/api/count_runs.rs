//! Counts of runs.

use std::future::IntoFuture;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};

use crate::util::patience::Vain;
use crate::util::shown::system_time;
use crate::{RunCounts, RuntimeError, Scoop, When};

/// The time in which ends are counted by default.
const WINDOW: Duration = Duration::from_secs(60 * 60);

/// The maximum count of ends.
const ENDS_MAX: usize = 100_000;

/// Runs about to be counted. Await it for [`RunCounts`].
#[must_use = "nothing is counted before this is awaited"]
#[derive(Clone)]
pub struct CountRuns {
    scoop: Scoop,
    since: Option<SystemTime>,
}

impl CountRuns {
    /// Counts the ends of runs since this time, by the clock of the server; by default in the last hour.
    pub fn since(mut self, time: SystemTime) -> Self {
        self.since = Some(time);
        self
    }

    async fn read(self) -> Result<RunCounts, RuntimeError> {
        let scoop = &self.scoop;
        let now =
            scoop.patiently(|_| scoop.store().now()).await.map_err(Vain::error("the clock was read"))?;
        let since = match self.since {
            Some(since) => When::At(since).instant(now.latest)?,
            None => now.latest - WINDOW,
        };
        let unfinished = scoop.patiently(|_| scoop.store().unfinished_counts()).await;
        let finished = scoop.patiently(|_| scoop.store().finished_counts(since, ENDS_MAX)).await;
        Ok(RunCounts {
            unfinished: unfinished.map_err(Vain::error("runs were counted"))?,
            finished: finished.map_err(Vain::error("runs were counted"))?,
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
    /// Counts runs by saga and state: all unfinished ones, and the ends of the last hour. Await it for [`RunCounts`].
    ///
    /// The cost grows with the number of unfinished runs, and of the ends that are counted: 100,000 at most for each
    /// saga and kind, which stands for that or more.
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
        CountRuns { scoop: self.clone(), since: None }
    }
}
