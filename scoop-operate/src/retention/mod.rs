//! Retention: the deletion of finished hierarchies by hand, and those that could not be deleted.

mod prune;

use std::fmt;
use std::time::SystemTime;

use scoop_core::Escaped;
use scoop_runtime::HierarchyId;
use scoop_runtime::internal::{json, system_time, time, utc};
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

pub use self::prune::Prune;
use crate::Operate;
use crate::list_request::{ListItem, ListRequest};
use crate::statements::RETENTION_UNDELETABLE;

/// The record of finished hierarchies. Programs delete it by themselves: see [`Builder::retention`](scoop_runtime::Builder::retention).
#[derive(Clone)]
pub struct Retention {
    pub(crate) operate: Operate,
}

impl Retention {
    /// The finished hierarchies that programs could not delete when their time was over, the one that is tried again first at the
    /// beginning. Await it. The guide has a page about
    /// [retention](https://docs.rs/crate/scoop-saga/latest/source/docs/retention.md).
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for kept in scoop.operate().retention().undeletable().limit(20).await? {
    ///     println!("{kept}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn undeletable(&self) -> ListRequest<Undeletable> {
        ListRequest::new(self.operate.database())
    }

    /// Deletes the record of hierarchies that finished long ago, and old signals. Await it for the counts. [`Prune`] has
    /// methods that set the age and the number of hierarchies, and one that only counts.
    ///
    /// A hierarchy is deleted as a whole, in one transaction. One is kept if a run of it is unfinished, stuck or failed, or if it
    /// is still needed:
    /// [`RetainedHierarchies`](scoop_runtime::RetainedHierarchies) has the reasons. Other processes can run sagas, launch and request anything meanwhile. The
    /// guide has a page about [retention](https://docs.rs/crate/scoop-saga/latest/source/docs/retention.md).
    ///
    /// A deleted hierarchy is as if it had never been: [`Scoop::find`](scoop_runtime::Scoop::find) returns [`RuntimeError::is_not_found`](scoop_runtime::RuntimeError::is_not_found), and a
    /// launch with its [unique](scoop_runtime::Launch::unique) key starts a new one, unless [the key is
    /// kept](scoop_runtime::Retention::unique_keys). The messages that are events of an entity
    /// stay.
    ///
    /// The call reads all runs, a thousand in one query, and deletes as many hierarchies in one transaction as take about 50 ms.
    ///
    /// # Errors
    ///
    /// [`OperateError::is_invalid`](crate::OperateError::is_invalid) if the age is below an hour: younger rows may still decide whether a
    /// repeated request is a repetition. If the [archive](scoop_runtime::Builder::archive_with) fails, whose error is the source; or if
    /// the database fails. What was deleted until then stays deleted. A hierarchy whose deletion the database refuses, for example because of a
    /// foreign key of a table of yours, is passed over: see [`RetainedHierarchies::refused`](scoop_runtime::RetainedHierarchies::refused).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, some of the hierarchies may have been deleted, each as a whole.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// use std::time::Duration;
    ///
    /// let quarter = Duration::from_secs(90 * 24 * 60 * 60);
    /// let would_be = scoop.operate().retention().prune().older_than(quarter).dry_run().await?;
    /// println!("{} hierarchies with {} events are old", would_be.hierarchies, would_be.events);
    ///
    /// let pruned = scoop.operate().retention().prune().older_than(quarter).limit(10_000).await?;
    /// println!("{} are deleted, {} are unfinished", pruned.hierarchies, pruned.retained.unfinished);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prune(&self) -> Prune {
        Prune::new(self.operate.clone())
    }
}

/// A hierarchy that programs could not delete although its time is over: see [`Retention::undeletable`]. Display it for one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Undeletable {
    /// The hierarchy.
    pub hierarchy: HierarchyId,
    /// The topic of its first message.
    pub topic: String,
    /// The error of the last attempt: of the database, or of the [archive](scoop_runtime::Builder::archive_with).
    pub error: String,
    /// The number of attempts that failed.
    pub failures: u32,
    /// When it is tried again, at the earliest.
    #[serde(serialize_with = "json::time")]
    pub retry_at: SystemTime,
}

impl fmt::Display for Undeletable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hierarchy, topic, error, failures, retry_at } = self;
        write!(f, "hierarchy {hierarchy}")?;
        if !topic.is_empty() {
            write!(f, " of topic `{}`", Escaped(topic))?;
        }
        let times = if *failures == 1 { "time" } else { "times" };
        write!(f, " could not be deleted, {failures} {times}: {}; ", Escaped(error))?;
        write!(f, "it is tried again from {} on", utc(*retry_at))
    }
}

impl ListItem for Undeletable {
    const STATEMENT: &'static str = RETENTION_UNDELETABLE;
    const DOING: &'static str = "undeletable hierarchies were listed";

    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            hierarchy: row.try_get::<Uuid, _>("root")?.into(),
            topic: row.try_get("topic")?,
            error: row.try_get::<Option<_>, _>("error")?.unwrap_or_default(),
            failures: row.try_get::<i32, _>("failures")?.unsigned_abs(),
            retry_at: system_time(time(row, "retry_at")?),
        })
    }
}
