//! A database in the memory of the program, for tests.

use std::time::{Duration, SystemTime};

use crate::HierarchyId;

use crate::store::{LoggedEvent, Memory, WorkingRun};

/// A database in the memory of this program, for tests. Several processes and clients of one test can share it, and
/// its events can be read. Cheap to clone; the last clone drops the data.
///
/// Its clock is that of tokio. If that is paused, time is virtual; see [`Scoop::in_memory`](crate::Scoop::in_memory).
/// Operations are at least a microsecond apart.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # struct OrderPlaced { order: u32 }
/// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), scoop_runtime::RuntimeError> {
/// use scoop::{InMemory, Scoop};
///
/// let database = InMemory::new();
/// let client = Scoop::builder().in_memory_on(&database).client().await?;
/// let order = client.launch(OrderPlaced { order: 7 }).await?;
/// let log = database.event_log();
/// assert_eq!((log.len(), log[0].message_id), (1, order.message_id()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InMemory(Memory);

impl Default for InMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemory {
    /// An empty database. Its clock starts at the current time.
    pub fn new() -> Self {
        Self::starting_at(SystemTime::now())
    }

    /// An empty database whose clock starts at this time, so that every test sees the same dates.
    ///
    /// ```
    /// # extern crate scoop_runtime as scoop;
    /// use std::time::{Duration, SystemTime};
    /// use scoop::InMemory;
    ///
    /// let new_year = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    /// assert!(InMemory::starting_at(new_year).now() >= new_year);
    /// ```
    pub fn starting_at(time: SystemTime) -> Self {
        Self(Memory::new(time.into()))
    }

    /// The current time of its clock.
    pub fn now(&self) -> SystemTime {
        self.0.time().into()
    }

    /// Advances its clock by this duration, as when the clock of a server is corrected: anything due meanwhile
    /// becomes due now. Tokio's clock is not affected.
    pub fn advance(&self, by: Duration) {
        self.0.advance(by);
    }

    /// All events, in the order in which they were written.
    pub fn event_log(&self) -> Vec<LoggedEvent> {
        self.0.event_log()
    }

    /// The events of the hierarchy of this id, see [`Handle::id`](crate::Handle::id).
    pub fn event_log_of(&self, hierarchy: impl Into<HierarchyId>) -> Vec<LoggedEvent> {
        self.0.event_log_of(hierarchy.into().uuid())
    }

    /// All unfinished runs, by hierarchy.
    pub fn working_set(&self) -> Vec<WorkingRun> {
        self.0.working_set()
    }

    /// The differences between the unfinished runs of the hierarchy of this id and those rebuilt from its events, as
    /// text for people; `None` if there are none.
    pub fn rebuild_differs(&self, hierarchy: impl Into<HierarchyId>) -> Option<String> {
        self.0.rebuild_differs(hierarchy.into().uuid())
    }

    /// Deletes all events of finished hierarchies, and returns the number of these hierarchies. For tests with so
    /// many of them that memory would run out. Deleted hierarchies cannot be looked up or rolled back, and their
    /// [unique](crate::Launch::unique) keys can be used again.
    pub fn forget_ended(&self) -> usize {
        self.0.forget_ended()
    }

    pub(crate) fn memory(&self) -> Memory {
        self.0.clone()
    }
}
