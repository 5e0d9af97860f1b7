//! Pauses of sagas, of topics, and of everything.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::engine::IDENTIFIER_PREFIX;
use crate::store::{NewPause, PAUSE_RUNNING_MAX, PauseProgress};
use crate::util::detached::run_to_completion;
use crate::util::retries::GivenUp;
use crate::{IntoPauseTarget, Pause, PauseTarget, RuntimeError, Scoop, telemetry};

/// The time for which a pause waits until all workers have acknowledged it.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);

/// The pauses between looks at the progress double from the first to the longest.
const LOOK_MIN: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(100);

/// The shortest time for which a pause can be made.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The longest name of a saga or topic, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The longest reason or source, in characters. Each waiting run shows them. Statements that read them end there, too.
const TEXT_CHARS_MAX: usize = 1_000;

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

    fn new(pause: Pause, progress: PauseProgress, runs_left: Option<usize>) -> Self {
        let PauseProgress { in_force, is_known, behind, running } = progress;
        let unacknowledged =
            behind.into_iter().map(|worker| format!("{IDENTIFIER_PREFIX}{worker}")).collect();
        Self { pause, in_force, is_known, unacknowledged, running, runs_left }
    }
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (counted, count) = match self.runs_left {
            Some(left) => ("begun runs left", left),
            None => ("runs in a step", self.running),
        };
        let or_more = if count >= PAUSE_RUNNING_MAX { " or more" } else { "" };
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
    scoop: Scoop,
    asked: NewPause,
    drain: Option<Duration>,
}

impl SetPause {
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
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
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

    async fn carry_out(mut self) -> Result<Paused, RuntimeError> {
        check_name(&self.asked.target)?;
        check_texts(&self.asked.source, self.asked.reason.as_deref())?;
        if let Some(time) = self.asked.limit.filter(|time| *time < PAUSE_MIN) {
            return Err(RuntimeError::PauseTime { time, least: PAUSE_MIN });
        }
        // The database cannot store a NUL.
        self.asked.source = self.asked.source.replace('\0', "");
        self.asked.reason = self.asked.reason.map(|reason| reason.replace('\0', ""));
        let Self { scoop, asked, drain } = self;
        let tables = scoop.tables("a pause")?;
        let began = Instant::now();
        let pausing = {
            let (scoop, tables) = (scoop.clone(), tables.clone());
            run_to_completion(async move { Ok(scoop.retrying(|_| tables.pause(&asked)).await) })
        };
        let pause = pausing.await.unwrap_or_else(|error| Err(error.into()));
        let pause = pause.map_err(GivenUp::error("a pause was made"))?;
        telemetry::pause_began(&pause);
        scoop.on_pauses_changed();
        let mut look = LOOK_MIN;
        loop {
            let asked = Instant::now();
            let progress = scoop.retrying(|_| tables.pause_progress(&pause.target)).await;
            let progress = progress.map_err(GivenUp::error("a pause was made"))?;
            let left = match pause.new_runs_only {
                true => {
                    let left = scoop.retrying(|_| tables.runs_left(&pause.target)).await;
                    Some(left.map_err(GivenUp::error("a pause was made"))?)
                }
                false => None,
            };
            let paused = Paused::new(pause.clone(), progress, left);
            let (is_done, limit) = match drain {
                Some(limit) => (paused.is_drained(), limit),
                None => (paused.unacknowledged.is_empty(), ACKNOWLEDGED_WITHIN),
            };
            if is_done || !paused.in_force || began.elapsed() >= limit {
                return Ok(paused);
            }
            // A count of many runs takes a while.
            sleep(look.max(asked.elapsed()).min(limit.saturating_sub(began.elapsed()))).await;
            look = (look * 2).min(LOOK_MAX);
        }
    }
}

impl IntoFuture for SetPause {
    type Output = Result<Paused, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.carry_out().boxed()
    }
}

/// A wait until no run of something is left that has begun. Await it: the result is the number of runs that are left, 0 unless
/// the time of [`within`](Self::within) was over; 1,000 stands for that or more.
#[must_use = "nothing is waited for before this is awaited"]
pub struct Drained {
    scoop: Scoop,
    target: PauseTarget,
    within: Option<Duration>,
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
    pub fn progress(&self) -> impl Future<Output = Result<usize, RuntimeError>> + Send {
        async move {
            check_name(&self.target)?;
            let tables = self.scoop.tables("a pause")?;
            let left = self.scoop.read_retrying(|_| tables.runs_left(&self.target)).await;
            left.map_err(GivenUp::error("runs were counted"))
        }
        .boxed()
    }

    async fn wait(self) -> Result<usize, RuntimeError> {
        let began = Instant::now();
        let mut look = LOOK_MIN;
        loop {
            let asked = Instant::now();
            let left = self.progress().await?;
            let rest = self.within.map(|time| time.saturating_sub(began.elapsed()));
            if left == 0 || rest == Some(Duration::ZERO) {
                return Ok(left);
            }
            let pause = look.max(asked.elapsed() * 10);
            sleep(rest.map_or(pause, |rest| pause.min(rest))).await;
            look = (look * 2).min(LOOK_MAX);
        }
    }
}

impl IntoFuture for Drained {
    type Output = Result<usize, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.wait().boxed()
    }
}

/// A pause about to be ended. Await it.
#[must_use = "nothing is resumed before this is awaited"]
pub struct Resume {
    scoop: Scoop,
    target: PauseTarget,
    source: String,
    reason: Option<String>,
}

impl Resume {
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

    async fn carry_out(self) -> Result<Option<Pause>, RuntimeError> {
        let Self { scoop, target, source, reason } = self;
        check_name(&target)?;
        check_texts(&source, reason.as_deref())?;
        // The database cannot store a NUL.
        let (source, reason) = (source.replace('\0', ""), reason.map(|reason| reason.replace('\0', "")));
        let resuming = {
            let (scoop, tables) = (scoop.clone(), scoop.tables("a pause")?.clone());
            // A retry would not return the pause that the first attempt ended.
            let resume = async move {
                let once = |_| tables.resume(&target, &source, reason.as_deref());
                scoop.trial().once().run(once).await
            };
            run_to_completion(async move { Ok(resume.await) })
        };
        let ended = resuming.await.unwrap_or_else(|error| Err(error.into()));
        let ended = ended.map_err(GivenUp::error("a pause was ended"))?;
        if let Some(pause) = &ended {
            telemetry::pause_ended(pause, "it was resumed");
            scoop.on_pauses_changed();
        }
        Ok(ended)
    }
}

impl IntoFuture for Resume {
    type Output = Result<Option<Pause>, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.carry_out().boxed()
    }
}

/// # Errors
///
/// If no saga or topic can have the name.
fn check_name(target: &PauseTarget) -> Result<(), RuntimeError> {
    let name = target.name();
    let is_possible = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('\0');
    match target {
        PauseTarget::Topic(_) | PauseTarget::Handler(_) if !is_possible => {
            Err(RuntimeError::PauseTarget { target: target.clone() })
        }
        _ => Ok(()),
    }
}

/// # Errors
///
/// If the source or the reason of a pause, or of its end, is too long.
fn check_texts(source: &str, reason: Option<&str>) -> Result<(), RuntimeError> {
    for (part, text) in [("source", source), ("reason", reason.unwrap_or_default())] {
        let chars = text.chars().count();
        if chars > TEXT_CHARS_MAX {
            return Err(RuntimeError::PauseText { part, chars, chars_max: TEXT_CHARS_MAX });
        }
    }
    Ok(())
}

/// `scoop_operate::Pauses::pause`.
pub fn pause(scoop: &Scoop, target: impl IntoPauseTarget) -> SetPause {
    let target = target.into_pause_target();
    let asked = NewPause { target, reason: None, source: "scoop".into(), limit: None, new_runs_only: false };
    SetPause { scoop: scoop.clone(), asked, drain: None }
}

/// `scoop_operate::Pauses::resume`.
pub fn resume(scoop: &Scoop, target: impl IntoPauseTarget) -> Resume {
    let target = target.into_pause_target();
    Resume { scoop: scoop.clone(), target, source: "scoop".into(), reason: None }
}

/// `scoop_operate::Pauses::is_registered`.
pub fn is_registered(
    scoop: &Scoop,
    target: &PauseTarget,
) -> impl Future<Output = Result<bool, RuntimeError>> + Send + use<> {
    let (scoop, target) = (scoop.clone(), target.clone());
    async move {
        let tables = scoop.tables("a pause")?;
        let progress = scoop.retrying(|_| tables.pause_progress(&target)).await;
        progress.map(|progress| progress.is_known).map_err(GivenUp::error("a name was looked up"))
    }
    .boxed()
}

/// `scoop_operate::Pauses::drained`.
pub fn drained(scoop: &Scoop, target: impl IntoPauseTarget) -> Drained {
    Drained { scoop: scoop.clone(), target: target.into_pause_target(), within: None }
}
