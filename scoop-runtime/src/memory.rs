//! A database in the memory of the program, for tests.

use std::time::{Duration, SystemTime};

use crate::HierarchyId;

use crate::store::{LoggedEvent, Memory, WorkingRun};

/// A database in the memory of this program, for tests: several processes of one test can share it, as
/// can clients, and what is on record can be read out. Cheap to clone; it lives as long as anybody has it.
///
/// Its clock is that of tokio. Where that is paused, time is virtual; see [`Scoop::in_memory`](crate::Scoop::in_memory).
/// No two operations take place at the same time: they are at least a microsecond apart.
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
    /// An empty database. Its clock starts with the time that it is.
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

    /// What time it is by its clock.
    pub fn now(&self) -> SystemTime {
        self.0.time().into()
    }

    /// Puts its clock forward by so much, as a server may be that was set wrong: what is due meanwhile is
    /// due now. Tokio's clock stays where it is.
    pub fn advance(&self, by: Duration) {
        self.0.advance(by);
    }

    /// All that is on record, in the order in which it was written.
    pub fn event_log(&self) -> Vec<LoggedEvent> {
        self.0.event_log()
    }

    /// What is on record of the hierarchy of this id, see [`Handle::id`](crate::Handle::id).
    pub fn event_log_of(&self, hierarchy: impl Into<HierarchyId>) -> Vec<LoggedEvent> {
        self.0.event_log_of(hierarchy.into().uuid())
    }

    /// All runs that are unfinished, by hierarchy.
    pub fn working_set(&self) -> Vec<WorkingRun> {
        self.0.working_set()
    }

    /// In what the unfinished runs of the hierarchy of this id differ from those that follow from what is
    /// on record; nothing if all is well. For people to read.
    pub fn rebuild_differs(&self, hierarchy: impl Into<HierarchyId>) -> Option<String> {
        self.0.rebuild_differs(hierarchy.into().uuid())
    }

    /// Forgets all that is on record of hierarchies that have ended, and says how many those were: for
    /// tests with so many of them that memory would run out. Nobody can ask for them afterwards, undo
    /// them, or know that a [unique](crate::Launch::unique) message was launched.
    pub fn forget_ended(&self) -> usize {
        self.0.forget_ended()
    }

    pub(crate) fn memory(&self) -> Memory {
        self.0.clone()
    }
}
