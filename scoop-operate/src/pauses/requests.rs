//! Requests to pause and to resume, and the wait until what is paused has ended.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_runtime::internal::{
    FetchExt as _, IDENTIFIER_PREFIX, pause_began, pause_ended, reschedule_timer, run_to_completion,
};
use scoop_runtime::{Pause, PauseTarget};
use serde::Serialize;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::database::Database;
use crate::error::{ErrorKind, failed};
use crate::statements::{PAUSE_END, PAUSE_PROGRESS, PAUSE_SET, RUN_COUNT_LEFT};
use crate::{Operate, OperateError};

/// The time for which a pause waits until all workers have acknowledged it.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);

/// The pauses between looks at the progress double from the first to the longest.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(2);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// The shortest and the longest time for which a pause can be made.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// The longest name of a saga or topic, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The longest reason or source, in characters. Each waiting run shows them. Statements that read them end there, too.
const TEXT_CHARS_MAX: usize = 1_000;

/// The maximum value of [`Paused::running`], and of runs that are left.
const RUNNING_MAX: usize = 1_000;

/// The result of a pause (`operate().pauses().pause`). Display it for one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Paused {
    /// The pause, as it is stored.
    #[serde(flatten)]
    pub pause: Pause,
    /// Whether the pause was still in force when the call returned. Another program may have ended it.
    pub in_force: bool,
    /// Whether a handler was ever registered that it covers. Otherwise the name may be mistyped.
    pub is_known: bool,
    /// The identifiers of living workers that have not acknowledged it: they may still begin a step. Empty unless a worker
    /// did not respond within ten seconds, or within the time of [`SetPause::drain`].
    pub unacknowledged: Vec<String>,
    /// The number of runs that it covers and that are in the middle of a step; 1,000 stands for that or more.
    pub running: usize,
    /// Under a pause for new runs only, the number of runs that it covers and that go on: those that have begun, and new ones
    /// below these; 1,000 stands for that or more. `None` for another pause.
    pub runs_left: Option<usize>,
}

impl Paused {
    /// Whether the pause is in force and no run that it covers is in the middle of a step: none of its steps begins before
    /// the pause ends. Of a pause for new runs only: whether no run is left that has begun.
    pub fn is_drained(&self) -> bool {
        let left = self.runs_left.unwrap_or(self.running);
        self.in_force && self.unacknowledged.is_empty() && left == 0
    }

    /// Decodes a row of `pause_progress.sql`.
    fn from_row(row: &PgRow, pause: Pause) -> sqlx::Result<Self> {
        let (behind, running): (Vec<Uuid>, i64) = (row.try_get("behind")?, row.try_get("running")?);
        let identifier = |worker: Uuid| format!("{IDENTIFIER_PREFIX}{worker}");
        Ok(Self {
            pause,
            in_force: row.try_get("stands")?,
            is_known: row.try_get("is_known")?,
            unacknowledged: behind.into_iter().map(identifier).collect(),
            running: usize::try_from(running).unwrap_or(0),
            runs_left: None,
        })
    }
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (counted, count) = match self.runs_left {
            Some(left) => ("begun runs left", left),
            None => ("runs in a step", self.running),
        };
        let or_more = if count >= RUNNING_MAX { " or more" } else { "" };
        write!(f, "{}; {counted}: {count}{or_more}", self.pause)?;
        if !self.unacknowledged.is_empty() {
            write!(f, "; not acknowledged by {}", self.unacknowledged.join(", "))?;
        }
        if !self.is_known {
            f.write_str("; no handler was ever registered that it covers")?;
        }
        f.write_str(if self.in_force { "" } else { "; ended meanwhile" })
    }
}

/// A pause about to be made. Await it.
#[must_use = "nothing is paused before this is awaited"]
pub struct SetPause {
    operate: Operate,
    asked: NewPause,
    drain: Option<Duration>,
}

/// A pause as it is requested.
struct NewPause {
    target: PauseTarget,
    reason: Option<String>,
    source: String,
    limit: Option<Duration>,
    new_runs_only: bool,
}

impl SetPause {
    pub(super) fn new(operate: Operate, target: PauseTarget) -> Self {
        let asked =
            NewPause { target, reason: None, source: "scoop".into(), limit: None, new_runs_only: false };
        Self { operate, asked, drain: None }
    }

    /// Gives the reason, which is shown with each waiting run. At most 1,000 characters.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.asked.reason = Some(reason.into());
        self
    }

    /// Names the source of the request; `scoop` by default. At most 1,000 characters.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.asked.source = source.into();
        self
    }

    /// Ends the pause by itself after this time, by the clock of the database: from a millisecond to a hundred years. A longer time
    /// counts as that; a shorter one is refused. Without a time the pause lasts until `operate().pauses().resume` ends it.
    pub fn for_at_most(mut self, time: Duration) -> Self {
        self.asked.limit = Some(time);
        self
    }

    /// Pauses new runs only: runs that have begun go on to their ends, also their rollbacks, and others wait. A run that is
    /// launched below an unfinished one of those goes on, too, so that it can finish.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// # use std::time::Duration;
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::PauseTarget;
    /// let paused = scoop
    ///     .operate()
    ///     .pauses()
    ///     .pause(PauseTarget::handler("courier"))
    ///     .new_runs_only()
    ///     .drain(Duration::from_secs(60))
    ///     .await?;
    /// if !paused.is_drained() {
    ///     println!("{:?} runs are left", paused.runs_left);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn new_runs_only(mut self) -> Self {
        self.asked.new_runs_only = true;
        self
    }

    /// Also waits until no run that is paused is in the middle of a step, for at most this time; under a pause for new runs
    /// only, until no run is left that has begun. [`Paused::is_drained`] is the result.
    pub fn drain(mut self, at_most: Duration) -> Self {
        self.drain = Some(at_most);
        self
    }

    async fn carry_out(mut self) -> Result<Paused, OperateError> {
        check_name(&self.asked.target)?;
        check_texts(&self.asked.source, self.asked.reason.as_deref())?;
        if let Some(time) = self.asked.limit.filter(|time| *time < PAUSE_MIN) {
            return Err(ErrorKind::PauseTime { time, least: PAUSE_MIN }.into());
        }
        // The database cannot store a NUL.
        self.asked.source = self.asked.source.replace('\0', "");
        self.asked.reason = self.asked.reason.map(|reason| reason.replace('\0', ""));
        let Self { operate, asked, drain } = self;
        const DOING: &str = "a pause was made";
        let database = operate.required("a pause")?;
        let began = Instant::now();
        let pausing = {
            let database = database.clone();
            run_to_completion(async move { database.trial().run(|_| database.pause(&asked)).await })
        };
        let pause = pausing.await.map_err(failed(DOING))?;
        pause_began(&pause);
        reschedule_timer(&operate.scoop);
        let mut poll_interval = POLL_INTERVAL_MIN;
        loop {
            let asked = Instant::now();
            let mut paused = database.retrying(DOING, |_| database.progress(&pause)).await?;
            if pause.new_runs_only {
                let left = database.retrying(DOING, |_| database.runs_left(&pause.target)).await?;
                paused.runs_left = Some(left);
            }
            let (is_complete, limit) = match drain {
                Some(limit) => (paused.is_drained(), limit),
                None => (paused.unacknowledged.is_empty(), ACKNOWLEDGED_WITHIN),
            };
            if is_complete || !paused.in_force || began.elapsed() >= limit {
                return Ok(paused);
            }
            // A count of many runs takes a while.
            sleep(poll_interval.max(asked.elapsed()).min(limit.saturating_sub(began.elapsed()))).await;
            poll_interval = (poll_interval * 2).min(POLL_INTERVAL_MAX);
        }
    }
}

impl IntoFuture for SetPause {
    type Output = Result<Paused, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.carry_out().boxed()
    }
}

/// A wait until no run of something is left that has begun. Await it: the result is the number of runs that are left, 0 unless
/// the time of [`within`](Self::within) was over; 1,000 stands for that or more.
#[must_use = "nothing is waited for before this is awaited"]
pub struct Drained {
    pub(super) operate: Operate,
    pub(super) target: PauseTarget,
    pub(super) within: Option<Duration>,
}

impl Drained {
    /// Waits for at most this time.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    /// The number of runs that are left now; 1,000 stands for that or more.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn progress(&self) -> impl Future<Output = Result<usize, OperateError>> + Send {
        async move {
            check_name(&self.target)?;
            let database = self.operate.required("a pause")?;
            database.read_retrying("runs were counted", |_| database.runs_left(&self.target)).await
        }
        .boxed()
    }

    async fn wait(self) -> Result<usize, OperateError> {
        let began = Instant::now();
        let mut poll_interval = POLL_INTERVAL_MIN;
        loop {
            let asked = Instant::now();
            let left = self.progress().await?;
            let rest = self.within.map(|time| time.saturating_sub(began.elapsed()));
            if left == 0 || rest == Some(Duration::ZERO) {
                return Ok(left);
            }
            let pause = poll_interval.max(asked.elapsed() * 10);
            sleep(rest.map_or(pause, |rest| pause.min(rest))).await;
            poll_interval = (poll_interval * 2).min(POLL_INTERVAL_MAX);
        }
    }
}

impl IntoFuture for Drained {
    type Output = Result<usize, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.wait().boxed()
    }
}

/// A pause about to be ended. Await it.
#[must_use = "nothing is resumed before this is awaited"]
pub struct Resume {
    operate: Operate,
    target: PauseTarget,
    source: String,
    reason: Option<String>,
}

impl Resume {
    pub(super) fn new(operate: Operate, target: PauseTarget) -> Self {
        Self { operate, target, source: "scoop".into(), reason: None }
    }

    /// Gives the reason. At most 1,000 characters.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Names the source of the request; `scoop` by default. At most 1,000 characters.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    async fn carry_out(self) -> Result<Option<Pause>, OperateError> {
        let Self { operate, target, source, reason } = self;
        check_name(&target)?;
        check_texts(&source, reason.as_deref())?;
        // The database cannot store a NUL.
        let (source, reason) = (source.replace('\0', ""), reason.map(|reason| reason.replace('\0', "")));
        let database = operate.required("a pause")?;
        // A retry would not return the pause that the first attempt ended.
        let resuming = run_to_completion(async move {
            let once = |_| database.resume(&target, &source, reason.as_deref());
            database.trial().once().run(once).await
        });
        let ended = resuming.await.map_err(failed("a pause was ended"))?;
        if let Some(pause) = &ended {
            pause_ended(pause, "it was resumed");
            reschedule_timer(&operate.scoop);
        }
        Ok(ended)
    }
}

impl IntoFuture for Resume {
    type Output = Result<Option<Pause>, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.carry_out().boxed()
    }
}

/// # Errors
///
/// If no saga or topic can have the name.
fn check_name(target: &PauseTarget) -> Result<(), OperateError> {
    let name = target.name();
    let is_possible = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('\0');
    match target {
        PauseTarget::Topic(_) | PauseTarget::Handler(_) if !is_possible => {
            Err(ErrorKind::PauseTarget { target: target.clone() }.into())
        }
        _ => Ok(()),
    }
}

/// # Errors
///
/// If the source or the reason of a pause, or of its end, is too long.
fn check_texts(source: &str, reason: Option<&str>) -> Result<(), OperateError> {
    for (part, text) in [("source", source), ("reason", reason.unwrap_or_default())] {
        let chars = text.chars().count();
        if chars > TEXT_CHARS_MAX {
            return Err(ErrorKind::PauseText { part, chars, chars_max: TEXT_CHARS_MAX }.into());
        }
    }
    Ok(())
}

/// A change of the pauses is a change of the topology.
impl Database {
    async fn pause(&self, asked: &NewPause) -> sqlx::Result<Pause> {
        let NewPause { target, reason, source, limit, new_runs_only } = asked;
        let mut tx = self.begin_topology_change().await?;
        let row = sqlx::query(self.text(PAUSE_SET))
            .bind(target.kind())
            .bind(target.name())
            .bind(reason)
            .bind(source)
            .bind(limit.map(|limit| limit.min(PAUSE_MAX).as_secs_f64()))
            .bind(new_runs_only)
            .one_on(&mut tx)
            .await?;
        self.commit_topology_change(tx).await?;
        Pause::from_row(&row)
    }

    async fn resume(
        &self,
        target: &PauseTarget,
        source: &str,
        reason: Option<&str>,
    ) -> sqlx::Result<Option<Pause>> {
        let mut tx = self.begin_topology_change().await?;
        let end = sqlx::query(self.text(PAUSE_END))
            .bind(target.kind())
            .bind(target.name())
            .bind(source)
            .bind(reason);
        let Some(row) = end.first_on(&mut tx).await? else {
            return Ok(None);
        };
        self.trim_ended_pauses(&mut tx).await?;
        self.commit_topology_change(tx).await?;
        Pause::from_row(&row).map(Some)
    }

    /// How far a pause has taken effect.
    async fn progress(&self, pause: &Pause) -> sqlx::Result<Paused> {
        Paused::from_row(&self.progress_row(&pause.target).await?, pause.clone())
    }

    pub(super) async fn is_registered(&self, target: &PauseTarget) -> sqlx::Result<bool> {
        self.progress_row(target).await?.try_get("is_known")
    }

    async fn progress_row(&self, target: &PauseTarget) -> sqlx::Result<PgRow> {
        let read = sqlx::query(self.text(PAUSE_PROGRESS)).bind(target.kind()).bind(target.name());
        read.bind(i64::try_from(RUNNING_MAX).unwrap_or(i64::MAX)).one(self.sessions()).await
    }

    async fn runs_left(&self, target: &PauseTarget) -> sqlx::Result<usize> {
        let count = sqlx::query_scalar(self.text(RUN_COUNT_LEFT)).bind(target.kind()).bind(target.name());
        let count = count.bind(i64::try_from(RUNNING_MAX).unwrap_or(i64::MAX));
        let left: i64 = count.one(self.sessions()).await?;
        Ok(usize::try_from(left).unwrap_or(0))
    }
}
