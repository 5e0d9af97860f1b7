//! A database in the memory of the program, for tests.

use std::time::{Duration, SystemTime};

use super::builder::Database;
use crate::saga::registry::Registry;
use crate::store::{LoggedEvent, MemoryStore, Store, WorkingRun};
use crate::{Builder, HierarchyId, RuntimeError, Scoop, engine};

/// The default of [`Builder::poll_interval`] in memory, where no notification is lost.
const POLL_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// A database in the memory of this program, for tests. Several processes and clients of one test can share it, and
/// its events can be read. Cheap to clone; the last clone drops the data. With the feature `in-memory`.
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
/// let client = Scoop::builder().in_memory_database(&database).client().await?;
/// let order = client.launch(OrderPlaced { order: 7 }).await?;
/// let log = database.event_log();
/// assert_eq!((log.len(), log[0].message_id), (1, order.message_id()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InMemory(MemoryStore);

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
        Self(MemoryStore::new(time.into()))
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

    /// Deletes all events of finished hierarchies, and returns the number of these hierarchies. For tests with so
    /// many of them that memory would run out. Deleted hierarchies cannot be looked up or rolled back, and their
    /// [unique](crate::Launch::unique) keys can be used again.
    pub fn prune_finished(&self) -> usize {
        self.0.prune_finished()
    }

    pub(crate) fn memory(&self) -> MemoryStore {
        self.0.clone()
    }
}

impl Builder {
    /// Runs in the memory of this program, on a private database: see [`Scoop::in_memory`]. With the feature
    /// `in-memory`.
    pub fn in_memory(self) -> Self {
        self.in_memory_database(&InMemory::new())
    }

    /// Runs on this database in the memory of this program, which other programs and clients in it may share.
    /// With the feature `in-memory`.
    ///
    /// ```
    /// # extern crate scoop_runtime as scoop;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), scoop_runtime::RuntimeError> {
    /// use scoop::{InMemory, Scoop};
    ///
    /// let database = InMemory::new();
    /// let one = Scoop::builder().in_memory_database(&database).start().await?;
    /// let other = Scoop::builder().in_memory_database(&database).start().await?;
    /// let client = Scoop::builder().in_memory_database(&database).client().await?;
    /// # one.shutdown().await?;
    /// # other.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_memory_database(self, database: &InMemory) -> Self {
        self.on(Database::Memory(database.memory()))
    }

    /// Starts the engine on this database.
    pub(super) async fn start_in_memory(
        mut self,
        registry: Registry,
        memory: MemoryStore,
    ) -> Result<Scoop, RuntimeError> {
        self.settings.poll_interval = self.poll_interval.unwrap_or(POLL_INTERVAL);
        let (store, limits) = (Store::Memory(memory), (self.settings.limits, self.settings.retry_for));
        let in_tables: Vec<_> = registry.sagas.in_tables().collect();
        if !in_tables.is_empty() {
            return Err(in_tables.into());
        }
        let engine = engine::start(store.clone(), None, registry, self.settings)
            .await
            .map_err(RuntimeError::database("the engine started"))?;
        Ok(Scoop::new(None, store, Some(engine), None, limits))
    }
}

impl Scoop {
    /// Starts all sagas of the program on a database in its memory: for fast tests. The engine is the same as on
    /// PostgreSQL. The data is gone with the last clone. With the feature `in-memory`.
    ///
    /// The clock is that of tokio. If that is paused (`start_paused`, of tokio's feature `test-util`), time is
    /// virtual: as soon as the program is idle, the clock advances to the next due time. So a sleep of a day takes about
    /// a third of a second in a debug build: the engine looks each second of that time.
    ///
    /// There is no transaction, so a step that needs one ([`Scope::tx`](crate::Scope::tx),
    /// [`Scope::detach_unique`](crate::Scope::detach_unique)) fails with the reason. Values are not stored as text:
    /// the changes that PostgreSQL makes to JSON (it sorts keys and drops duplicates) do not happen.
    ///
    /// [`InMemory`](crate::InMemory) is for tests with several processes, or with a client.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::setup`] with all mistakes in the program.
    ///
    /// # Cancel safety
    ///
    /// As [`Builder::start`].
    ///
    /// ```
    /// # extern crate scoop_runtime as scoop;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { customer: u32 }
    /// # impl scoop_core::Message for Remind { const TOPIC: &'static str = "remind"; type Reply = (); }
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), scoop_runtime::RuntimeError> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    /// # runtime.block_on(async {
    /// let scoop = scoop::Scoop::in_memory().await?;
    /// let two_weeks = Duration::from_secs(14 * 24 * 60 * 60);
    /// scoop.launch(Remind { customer: 7 }).delay(two_weeks).await?.wait().await?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn in_memory() -> Result<Self, RuntimeError> {
        Self::builder().in_memory().start().await
    }
}
