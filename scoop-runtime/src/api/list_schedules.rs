//! Lists schedules.

use std::future::IntoFuture;

use futures_util::future::{BoxFuture, FutureExt};

use crate::util::patience::GivenUp;
use crate::{RegisteredSchedule, RuntimeError, Scoop};

/// A list of schedules about to be read. Await it.
///
/// ```no_run
/// # use scoop_runtime::{RuntimeError, Scoop};
/// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
/// let mut page = scoop.schedules().limit(100).await?;
/// while let Some(last) = page.last() {
///     println!("up to saga {}", last.handler);
///     page = scoop.schedules().after(&last.topic, &last.handler).limit(100).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is read before this is awaited"]
#[derive(Clone)]
pub struct ListSchedules {
    scoop: Scoop,
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

    async fn read(self) -> Result<Vec<RegisteredSchedule>, RuntimeError> {
        let Self { scoop, after: (topic, saga), limit } = &self;
        let list = |_| scoop.store().listed_schedules((topic.as_str(), saga.as_str()), *limit);
        let listed = scoop.read_patiently(list).await;
        listed.map_err(GivenUp::error("schedules were listed"))
    }
}

impl IntoFuture for ListSchedules {
    type Output = Result<Vec<RegisteredSchedule>, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

impl Scoop {
    /// The schedules of sagas, by topic and saga: those of all programs that ever started on this schema. Await it.
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
    /// for schedule in scoop.schedules().await? {
    ///     println!("{} is next due at {:?}", schedule.handler, schedule.next_at);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedules(&self) -> ListSchedules {
        ListSchedules { scoop: self.clone(), after: Default::default(), limit: None }
    }
}
