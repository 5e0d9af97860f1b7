//! What operators see of a program on PostgreSQL, and what they ask of it: runs, failures, pauses, handlers, entities, events,
//! schedules, the topology and retention.
//!
//! A role that may only read suffices for everything that reads. A program that only runs sagas does not need this crate. In memory
//! there is nothing to read; requests about failed runs, signals and triggers work there, too.
//!
//! What is read serializes itself, as the command line writes it with `--json` and the API of the web page answers. That form is
//! documented in `docs/reference/command_line.md`: fields are added, but not renamed or removed.
//!
//! Cancel safety: a future that only reads can be dropped and repeated. The others say what may have happened then.
//!
//! Users depend on `scoop-saga` with the feature `operate`, which has this crate as `scoop::operate`.

mod contents;
mod cursor;
mod database;
mod entities;
mod error;
mod events;
mod failures;
mod handlers;
mod list_request;
mod pauses;
mod retention;
mod runs;
mod schedules;
mod statements;
mod topology;

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_runtime::Scoop;
use scoop_runtime::internal::Tables;
pub use scoop_runtime::{QueueLength, RegisteredHandler, WaitKind};

pub use self::contents::Content;
pub use self::cursor::{BadCursor, ListCursor, RunCursor};
use self::database::Database;
pub use self::entities::{
    Entities, EntityContents, EntityEventContents, EntityNotRebuilt, RebuildEntities, RebuiltEntities,
};
use self::error::ErrorKind;
pub use self::error::OperateError;
pub use self::events::{BadEventCursor, EventCursor, EventStream, Events, RecordedEvent};
pub use self::failures::{FailedRollback, Failures, StuckRun};
pub use self::handlers::{
    FormerHandler, Handlers, ListFormerHandlers, ListHandlers, Redeliver, Redelivered, RegisteredWorker,
    Retire, Retired, WorkerSaga,
};
pub use self::list_request::{ListItem, ListRequest, PagedListItem};
pub use self::pauses::{Drained, EndedPause, Paused, Pauses, Resume, SetPause};
pub use self::retention::{Prune, Retention, Undeletable};
pub use self::runs::{
    Activity, ActivitySpan, CountRuns, Delay, Explanation, FailedBelow, FailureSummary, FindField, FindRuns,
    FindValue, FoundBy, FoundKey, JoinWait, LimitKey, Relaunch, RunContents, RunCount, RunCounts,
    RunDurations, RunExplanation, RunPage, RunPosition, RunSummary, RunValue, Runs, WaitReason,
    WaitingMember, WorkerInfo,
};
pub use self::schedules::{ListSchedules, RegisteredSchedule, Schedules};
#[doc(hidden)]
pub use self::statements::statements;
pub use self::topology::{Affected, StepLaunch, Topology, TopologyBuild, TopologyHandler, TopologyService};

/// What operators see of a program. [`OperateExt::operate`] returns it. Like a [`Scoop`], it keeps the program running.
#[derive(Clone)]
pub struct Operate {
    scoop: Scoop,
    /// `None` in memory.
    database: Option<Arc<Database>>,
}

/// Gives a program [`operate`](Self::operate).
pub trait OperateExt {
    /// What operators see of this program.
    ///
    /// # Panics
    ///
    /// The lists and requests panic in a program in memory, which has no database.
    ///
    /// ```no_run
    /// use scoop_operate::OperateExt;
    ///
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for run in scoop.operate().runs().list().handler("checkout").await?.runs {
    ///     println!("{run}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn operate(&self) -> Operate;
}

impl OperateExt for Scoop {
    fn operate(&self) -> Operate {
        let database = Tables::of(self).map(|tables| Arc::new(Database(tables)));
        Operate { scoop: self.clone(), database }
    }
}

impl Operate {
    /// The rights on tables and functions that a program with sagas needs, and the role of this program lacks, such as
    /// `INSERT on scoop.message`. Empty in memory. A client needs fewer: see the page about security of the guide.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for right in scoop.operate().lacking_rights().await? {
    ///     println!("missing: {right}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lacking_rights(&self) -> impl Future<Output = Result<Vec<String>, OperateError>> + Send {
        let database = self.database.clone();
        async move {
            let Some(database) = database else { return Ok(vec![]) };
            database.read_retrying("the rights of the role were checked", |_| database.lacking_rights()).await
        }
        .boxed()
    }

    /// The runs: lists, counts, and what they wait for.
    pub fn runs(&self) -> Runs {
        Runs { operate: self.clone() }
    }

    /// The runs that need an operator: failed rollbacks and stuck runs.
    pub fn failures(&self) -> Failures {
        Failures { operate: self.clone() }
    }

    /// Pauses of sagas, of topics and of everything.
    pub fn pauses(&self) -> Pauses {
        Pauses { operate: self.clone() }
    }

    /// The record of finished hierarchies, and its deletion by hand.
    pub fn retention(&self) -> Retention {
        Retention { operate: self.clone() }
    }

    /// The entities, by their names.
    pub fn entities(&self) -> Entities {
        Entities { operate: self.clone() }
    }

    /// The recorded events, as they become visible. [`Events::follow`] returns a stream of them.
    ///
    /// Each event comes once, after the commit of its transaction, and none is left out. The events of a run come in their
    /// order, as do a launch and the runs of its message; those of different runs come in the order of their commits,
    /// about. In a look with more than 10,000 events, this order is that of the ids of events, but for 10,000 events that
    /// are sorted by their times: it is wrong if the clocks of two programs differ by more than the time in which so many
    /// events are written. Events can be late: by the interval, and while a transaction stays open in which more than 10,000
    /// events were written since, until its end.
    ///
    /// A stream that begins now has the events of all transactions that are open by then, regardless of for how long. For
    /// that, its role has to see since when they are open: those of other roles are hidden from a role that is no member of
    /// `pg_read_all_stats`. Beside hidden or prepared transactions, it leaves out the events of those that have been open for
    /// more than an hour, unless a program has [deleted](scoop_runtime::Retention) finished hierarchies since they began. If more than 10,000
    /// events were written since the oldest open transaction began, those beyond can come although they were there before.
    ///
    /// A stream keeps no connection, and up to 10,000 events in memory. Each look reads the events of the last minute, and of the time
    /// since the oldest open transaction began, so a stream looks less often where that takes long.
    ///
    /// The id of an event may be a minute older than its row, by the clock of the server. A program whose clock is more
    /// than a minute behind writes events that the stream does not find.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let mut events = scoop.operate().events().handler("checkout").follow();
    /// while let Some(event) = events.next().await {
    ///     println!("{}", event?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> Events {
        Events::new(self.database())
    }

    /// The handlers: their workers, definitions and queues.
    pub fn handlers(&self) -> Handlers {
        Handlers { operate: self.clone() }
    }

    /// The schedules.
    pub fn schedules(&self) -> Schedules {
        Schedules { operate: self.clone() }
    }

    /// The topology of the database.
    ///
    /// A launch is known shortly after it has happened for the first time, or once a program starts whose step declares it. Launches
    /// of steps that a saga does not have any more are left out.
    ///
    /// The cost grows with the number of handlers, workers and definitions.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for launch in scoop.operate().topology().await?.launches {
    ///     println!("step {} of {} launches messages on {}", launch.step, launch.saga, launch.topic);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn topology(&self) -> BoxFuture<'static, Result<Topology, OperateError>> {
        let database = self.database();
        async move { Topology::read(&database).await }.boxed()
    }

    /// The database, which this needs.
    fn required(&self, needs: &'static str) -> Result<Arc<Database>, OperateError> {
        self.database.clone().ok_or_else(|| ErrorKind::InMemory { needs }.into())
    }

    fn database(&self) -> Arc<Database> {
        let database = self.database.clone();
        database.expect("this program runs in memory, where operators find nothing")
    }
}
