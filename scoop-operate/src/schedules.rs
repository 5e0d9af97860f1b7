//! Schedules.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt, TryFutureExt};
use scoop_runtime::internal::{self, FetchExt as _, json, system_time, time_if_any};
use scoop_runtime::{Handle, HierarchyId};
use serde::{Serialize, Serializer};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::Operate;
use crate::OperateError;
use crate::database::Database;
use crate::statements::SCHEDULE_LIST;

/// The schedules of a database.
#[derive(Clone)]
pub struct Schedules {
    pub(crate) operate: Operate,
}

/// A list of schedules about to be read. Await it.
///
/// ```no_run
/// # use scoop_operate::OperateExt as _;
/// # use scoop_runtime::Scoop;
/// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
/// let mut page = scoop.operate().schedules().list().limit(100).await?;
/// while let Some(last) = page.last() {
///     println!("up to saga {}", last.handler);
///     page = scoop.operate().schedules().list().after(&last.topic, &last.handler).limit(100).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is read before this is awaited"]
#[derive(Clone)]
pub struct ListSchedules {
    database: Arc<Database>,
    after: (String, String),
    limit: Option<u32>,
}

impl ListSchedules {
    /// Sets the maximum number of schedules; by default all are read.
    pub fn limit(mut self, schedules: u32) -> Self {
        self.limit = Some(schedules);
        self
    }

    /// Reads only the schedules after that of this topic and saga. With the last schedule of a list, this is the next page.
    pub fn after(mut self, topic: impl Into<String>, saga: impl Into<String>) -> Self {
        self.after = (topic.into(), saga.into());
        self
    }

    async fn read(self) -> Result<Vec<RegisteredSchedule>, OperateError> {
        let Self { database, after: (topic, saga), limit } = &self;
        let list = |_| database.list_schedules((topic.as_str(), saga.as_str()), *limit);
        database.read_retrying("schedules were listed", list).await
    }
}

impl IntoFuture for ListSchedules {
    type Output = Result<Vec<RegisteredSchedule>, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

impl Schedules {
    /// As [`Scoop::trigger`](scoop_runtime::Scoop::trigger), with the saga given by its stored name.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let outcome = scoop.operate().schedules().trigger("nightly-report").await?.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn trigger(
        &self,
        saga: impl Into<String>,
    ) -> impl Future<Output = Result<Handle, OperateError>> + Send {
        internal::trigger_named(&self.operate.scoop, saga).err_into()
    }

    /// The schedules of sagas, by topic and saga: those of all programs that ever started on this schema. Await it.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for schedule in scoop.operate().schedules().list().await? {
    ///     println!("{} is next due at {:?}", schedule.handler, schedule.next_at);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self) -> ListSchedules {
        ListSchedules { database: self.operate.database(), after: Default::default(), limit: None }
    }
}

impl Database {
    async fn list_schedules(
        &self,
        (topic, handler): (&str, &str),
        limit: Option<u32>,
    ) -> sqlx::Result<Vec<RegisteredSchedule>> {
        let list = sqlx::query(self.text(SCHEDULE_LIST)).bind(topic).bind(handler);
        let rows = list.bind(limit.map(i64::from)).all(self.sessions()).await?;
        rows.iter().map(RegisteredSchedule::from_row).collect()
    }
}

/// A schedule of a saga, as the database has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RegisteredSchedule {
    /// The topic of its ticks.
    pub topic: String,
    /// The saga.
    pub handler: String,
    /// The interval; `None` of a schedule by a cron expression.
    #[serde(rename = "every_ms", serialize_with = "json::millis")]
    pub every: Option<Duration>,
    /// The cron expression and its time zone.
    #[serde(flatten, serialize_with = "cron")]
    pub cron: Option<(String, String)>,
    /// The handling of times at which no program lived: `skip`, `once` or `all`.
    pub missed: String,
    /// The handling of a time that comes while the last run goes on: `allow` or `skip`.
    pub overlap: String,
    /// The next time; `None` if there is none.
    #[serde(serialize_with = "json::time")]
    pub next_at: Option<SystemTime>,
    /// The number of ticks launched so far.
    pub run_count: u64,
    /// The hierarchy of the last of them.
    pub last: Option<HierarchyId>,
}

/// A cron expression as two fields.
#[expect(clippy::ref_option, reason = "serde wants a reference")]
fn cron<S: Serializer>(cron: &Option<(String, String)>, serializer: S) -> Result<S::Ok, S::Error> {
    let (cron, zone) = cron.as_ref().map(|(cron, zone)| (cron, zone)).unzip();
    serializer.collect_map([("cron", cron), ("zone", zone)])
}

impl RegisteredSchedule {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let every: Option<i64> = row.try_get("every_ms")?;
        let (cron, zone): (Option<String>, Option<String>) = (row.try_get("cron")?, row.try_get("zone")?);
        let (runs, last): (i64, Option<Uuid>) = (row.try_get("run_count")?, row.try_get("last_root")?);
        Ok(Self {
            topic: row.try_get("topic")?,
            handler: row.try_get("handler")?,
            every: every.map(|ms| Duration::from_millis(ms.unsigned_abs())),
            cron: cron.zip(zone),
            missed: row.try_get("missed")?,
            overlap: row.try_get("overlap")?,
            next_at: time_if_any(row, "next_at")?.map(system_time),
            run_count: u64::try_from(runs).unwrap_or(0),
            last: last.map(Into::into),
        })
    }
}
