//! Counts of runs by saga and state.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::RecordedStep;
use scoop_runtime::internal::{json, system_time};
use scoop_runtime::{RunPhase, When};
use serde::Serialize;

use super::Runs;
use super::found::{FieldFilter, FindValue};
use crate::OperateError;
use crate::database::Database;

/// What was done when the database failed.
const DOING: &str = "runs were counted";

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
    database: Arc<Database>,
    since: Option<SystemTime>,
    is_exact: bool,
    sagas: Option<usize>,
    fields: Vec<FieldFilter>,
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
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let counts = scoop.operate().runs().count().sagas(100).await?;
    /// println!("{} counts, all of them: {}", counts.unfinished.len(), counts.is_complete);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sagas(mut self, sagas: usize) -> Self {
        self.sagas = Some(sagas);
        self
    }

    /// Counts only runs that are found by this value of a field, as [`FindRuns::found_by`](crate::FindRuns::found_by) lists them. After
    /// several calls, those that are found by all of the values.
    ///
    /// Counting stops at 10,000 messages with the value, or runs of their hierarchies: then all counts are capped.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{RunPhase, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let counts = scoop.operate().runs().count().found_by("customer", "ada").await?;
    /// println!("{} runs of this customer are stuck", counts.unfinished_in(RunPhase::Stuck));
    /// # Ok(())
    /// # }
    /// ```
    pub fn found_by(mut self, field: impl Into<String>, value: impl Into<FindValue>) -> Self {
        self.fields.push(FieldFilter::new(field, value));
        self
    }

    async fn read(self) -> Result<RunCounts, OperateError> {
        let database = &self.database;
        let now = database.retrying("the clock was read", |_| database.now()).await?;
        let since = match self.since {
            Some(since) => When::At(since).instant(now.latest)?,
            None => now.latest - WINDOW,
        };
        if !self.fields.is_empty() {
            let limit = (!self.is_exact).then_some(UNFINISHED_MAX);
            let count = |_| database.found_counts(&self.fields, since, limit);
            let FoundCounts { unfinished, finished } = database.read_retrying(DOING, count).await?;
            let (since, read_at) = (system_time(since), system_time(now.latest));
            return Ok(RunCounts { unfinished, finished, since, read_at, is_complete: true });
        }
        let limits = |runs| CountLimits { runs: (!self.is_exact).then_some(runs), sagas: self.sagas };
        // One after the other: an exact count may take longer than the retry time, for which the other one would wait for a turn.
        let count = |_| database.unfinished_counts(limits(UNFINISHED_MAX));
        let unfinished = database.read_retrying(DOING, count).await?;
        let count = |_| database.finished_counts(since, limits(ENDS_MAX));
        let finished = database.read_retrying(DOING, count).await?;
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
    type Output = Result<RunCounts, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

impl Runs {
    /// Counts runs by saga and state: unfinished ones, those whose rollback failed, and the ends of the last hour. Await it for
    /// [`RunCounts`].
    ///
    /// The cost does not grow with the number of runs, since counting stops at a limit: 10,000 unfinished runs of a saga in
    /// a state (sleeping ones do not hide those that are due), and 100,000 ends of each kind.
    /// [`RunCount::is_capped`](crate::RunCount::is_capped) says so, and [`exact`](CountRuns::exact) counts all.
    ///
    /// # Errors
    ///
    /// [`OperateError::is_invalid`] if the time is outside the years 1 to 9999; or if the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::{RunPhase, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let counts = scoop.operate().runs().count().await?;
    /// println!("{} runs are stuck", counts.unfinished_in(RunPhase::Stuck));
    /// println!("{:.1} commits a second", counts.per_second(RunPhase::Committed));
    /// # Ok(())
    /// # }
    /// ```
    pub fn count(&self) -> CountRuns {
        let (database, fields) = (self.operate.database(), vec![]);
        CountRuns { database, since: None, is_exact: false, sagas: None, fields }
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
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for place in scoop.operate().runs().positions(&["checkout".to_owned()]).await? {
    ///     println!("{} runs are after {:?}", place.count, place.step);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn positions(&self, sagas: &[String]) -> Result<Vec<RunPosition>, OperateError> {
        let database = self.operate.database();
        database.read_retrying(DOING, |_| database.run_positions(sagas, UNFINISHED_MAX)).await
    }
}

/// The number of runs of a saga in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunCount {
    /// The saga.
    pub handler: String,
    /// The state.
    #[serde(rename = "state")]
    pub phase: RunPhase,
    /// The number, or a part of it.
    pub count: usize,
    /// Whether there are perhaps more: counting stopped at a limit.
    #[serde(rename = "capped")]
    pub is_capped: bool,
    /// The time since which the longest one of those counted is in that state; `None` for ends.
    #[serde(serialize_with = "json::time")]
    pub oldest: Option<SystemTime>,
}

/// The number of unfinished runs of a saga that have come to the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunPosition {
    /// The saga.
    pub handler: String,
    /// The topic.
    pub topic: String,
    /// The newest completed step of their execution; `None` before the first one, and in a rollback.
    pub step: Option<String>,
    /// The step that they have chosen to run next; `None` for the one that follows.
    pub jump: Option<String>,
    /// The steps of the definition under which `step` was completed; empty without that.
    pub steps: Vec<RecordedStep>,
    /// The name of the signal that they await.
    pub awaits: Option<String>,
    /// The number, or a part of it.
    pub count: usize,
    /// Whether there are perhaps more: counting stopped at a limit.
    pub is_capped: bool,
}

/// Up to how many runs are counted, and of how many sagas; by default all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountLimits {
    /// Of each saga in a state.
    pub(crate) runs: Option<usize>,
    /// In each state, those first whose names come first.
    pub(crate) sagas: Option<usize>,
}

/// Counts of runs that are found by fields.
#[derive(Debug, Default)]
pub(crate) struct FoundCounts {
    pub(crate) unfinished: Vec<RunCount>,
    pub(crate) finished: Vec<RunCount>,
}

/// Counts of runs, and whether no saga is left out.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) counts: Vec<RunCount>,
    pub(crate) is_complete: bool,
}

impl RunCount {
    pub(crate) fn new(handler: String, phase: RunPhase, count: usize) -> Self {
        Self { handler, phase, count, is_capped: false, oldest: None }
    }
}

/// Counts of runs by saga and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunCounts {
    /// Unfinished runs, and those whose [rollback failed](RunPhase::RollbackFailed) until an operator has settled that. Each
    /// counts in the state that lists of runs have.
    pub unfinished: Vec<RunCount>,
    /// The ends of runs since [`since`](Self::since): committed or rolled back. A run that was undone after its commit
    /// counts with both.
    pub finished: Vec<RunCount>,
    /// The time since which ends are counted, by the clock of the database.
    #[serde(serialize_with = "json::time")]
    pub since: SystemTime,
    /// The time at which they were counted, by the clock of the database.
    #[serde(serialize_with = "json::time")]
    pub read_at: SystemTime,
    /// Whether the runs of all sagas are counted, and not only those of [so many](crate::CountRuns::sagas).
    #[serde(rename = "complete")]
    pub is_complete: bool,
}

impl RunCounts {
    /// The unfinished runs in this state, or those whose rollback failed, of all sagas; a part of them if one of the counts is
    /// capped.
    pub fn unfinished_in(&self, phase: RunPhase) -> usize {
        self.unfinished.iter().filter(|count| count.phase == phase).map(|count| count.count).sum()
    }

    /// The ends of this kind per second, of all sagas, in the time that is counted.
    pub fn per_second(&self, phase: RunPhase) -> f64 {
        let ended: usize = self.finished.iter().filter(|count| count.phase == phase).map(|it| it.count).sum();
        let seconds = self.read_at.duration_since(self.since).map_or(0.0, |time| time.as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let ended = ended as f64;
        if seconds > 0.0 { ended / seconds } else { 0.0 }
    }
}
