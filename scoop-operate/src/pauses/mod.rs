//! Pauses: those in force, those that have ended, and requests.

mod requests;

use std::fmt;
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::Escaped;
use scoop_runtime::internal::{FetchExt as _, json, system_time, time, utc};
use scoop_runtime::{IntoPauseTarget, Pause, PauseTarget};
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;

pub use self::requests::{Drained, Paused, Resume, SetPause};
use crate::list_request::{ListItem, ListRequest};
use crate::statements::{PAUSE_LIST, PAUSE_LIST_ENDED};
use crate::{Operate, OperateError};

/// The pauses of sagas, of topics and of everything.
#[derive(Clone)]
pub struct Pauses {
    pub(crate) operate: Operate,
}

impl Pauses {
    /// The pauses in force, longest first.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn list(&self) -> BoxFuture<'static, Result<Vec<Pause>, OperateError>> {
        let database = self.operate.database();
        async move {
            let read = database.read_retrying("the pauses were listed", |_| async {
                let rows = sqlx::query(database.text(PAUSE_LIST)).all(database.sessions()).await?;
                rows.iter().map(Pause::from_row).collect()
            });
            read.await
        }
        .boxed()
    }

    /// The pauses that ended last, the latest end first. Await it. The last 1,000 are kept.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for ended in scoop.operate().pauses().ended().limit(20).await? {
    ///     println!("{ended}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn ended(&self) -> ListRequest<EndedPause> {
        ListRequest::new(self.operate.database())
    }

    /// Pauses a saga, a topic, or everything, in all processes: no step of it begins, forward or in a rollback, and its runs
    /// stay in their queues. Await it; [`SetPause`] has methods that give a reason, a requester and a limit.
    ///
    /// The call returns when all living workers have acknowledged the pause: from then on no step begins. Steps in progress
    /// come to their ends and are recorded; [`SetPause::drain`] waits for these, too. Launches, cancellations, signals and the
    /// other handlers go on. The guide has a page about [pauses](https://docs.rs/crate/scoop-saga/latest/source/docs/pause.md).
    ///
    /// A pause of the same target is replaced, and is in force since its beginning. Pauses of different targets are
    /// independent: a run goes on when all that cover it have ended.
    ///
    /// # Errors
    ///
    /// [`OperateError::is_invalid`] if no saga or topic can have the name, if the reason or the source is too long, or if the time is
    /// shorter than a millisecond; or if the database fails.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it may be paused even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// use std::time::Duration;
    ///
    /// # use scoop_runtime::PauseTarget;
    ///
    /// let paused = scoop
    ///     .operate().pauses().pause(PauseTarget::handler("courier"))
    ///     .reason("the courier's service is away")
    ///     .source("night shift")
    ///     .for_at_most(Duration::from_secs(2 * 60 * 60))
    ///     .await?;
    /// println!("{paused}");
    /// scoop.operate().pauses().resume(paused.pause.target).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn pause(&self, target: impl IntoPauseTarget) -> SetPause {
        SetPause::new(self.operate.clone(), target.into_pause_target())
    }

    /// Ends the pause of exactly this target, in all processes. Await it for the pause, or `None` if there was none;
    /// [`Resume`] has methods that give a requester and a reason, which are [recorded](Pauses::ended).
    ///
    /// # Errors
    ///
    /// As [`Pauses::pause`], except for the time. [`OperateError::may_have_happened`] returns whether the pause may have ended despite the error.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the pause may have ended even if the future is dropped.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for pause in scoop.operate().pauses().list().await? {
    ///     println!("{pause}");
    ///     scoop.operate().pauses().resume(pause.target).source("night shift").reason("the courier is back").await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(&self, target: impl IntoPauseTarget) -> Resume {
        Resume::new(self.operate.clone(), target.into_pause_target())
    }

    /// Whether a handler was ever registered that a target covers. Otherwise its name may be mistyped.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// # use scoop_runtime::PauseTarget;
    /// if !scoop.operate().pauses().is_registered(&PauseTarget::handler("courir")).await? {
    ///     println!("no program ever had that saga");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_registered(
        &self,
        target: &PauseTarget,
    ) -> impl Future<Output = Result<bool, OperateError>> + Send + use<> {
        let (operate, target) = (self.operate.clone(), target.clone());
        async move {
            let database = operate.required("a pause")?;
            database.retrying("a name was looked up", |_| database.is_registered(&target)).await
        }
        .boxed()
    }

    /// Waits until no run of a saga, a topic or everything is left that has begun, whether or not it is paused. Await it, with
    /// [`Drained::within`] for at most some time. Also runs that rest count: as stuck, or awaiting an operator.
    ///
    /// Without a [pause for new runs only](SetPause::new_runs_only) new runs begin meanwhile, and under another pause none goes on.
    ///
    /// # Errors
    ///
    /// [`OperateError::is_invalid`] if no saga or topic can have the name; or if the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// # use std::time::Duration;
    /// # use scoop_runtime::PauseTarget;
    /// let courier = PauseTarget::handler("courier");
    /// scoop.operate().pauses().pause(&courier).new_runs_only().await?;
    /// println!("{} runs are left", scoop.operate().pauses().drained(&courier).progress().await?);
    /// let left = scoop.operate().pauses().drained(&courier).within(Duration::from_secs(600)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn drained(&self, target: impl IntoPauseTarget) -> Drained {
        Drained { operate: self.operate.clone(), target: target.into_pause_target(), within: None }
    }
}

/// A pause that has ended. Display it for one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EndedPause {
    /// The pause.
    #[serde(flatten)]
    pub pause: Pause,
    /// The time of its end.
    #[serde(serialize_with = "json::time")]
    pub ended_at: SystemTime,
    /// The requester of its end; `None` if its time was over.
    pub ended_by: Option<String>,
    /// The reason of its end, if one was given.
    pub end_reason: Option<String>,
}

impl fmt::Display for EndedPause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pause, ended_at, ended_by, end_reason } = self;
        write!(f, "{pause}; ended {}", utc(*ended_at))?;
        match ended_by {
            Some(source) => write!(f, " by {}", Escaped(source))?,
            None => f.write_str(", since its time was over")?,
        }
        end_reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {}", Escaped(reason)))
    }
}

impl ListItem for EndedPause {
    const STATEMENT: &'static str = PAUSE_LIST_ENDED;
    const DOING: &'static str = "the pauses were listed";

    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            pause: Pause::from_row(row)?,
            ended_at: system_time(time(row, "ended_at")?),
            ended_by: row.try_get("ended_by")?,
            end_reason: row.try_get("ended_reason")?,
        })
    }
}
