//! Support for simulations on a database in memory: processes whose every operation can fail, and ids derived from a
//! seed. Part of the feature `simulation`, which costs nothing if it is off.
//!
//! A simulation is reproducible if it has one thread (`current_thread`) with a paused clock, a [`seed`] and a
//! database that [starts at a fixed time](crate::InMemory::starting_at), and if the code of the sagas and the
//! [`FaultLink`]s use no other randomness.

use crate::InMemory;
pub use crate::api::Process;
pub use crate::store::memory::contents::{
    BegunStep, EndedRun, EntityEvent, Execution, FailedRun, Output, StoredSignal, Subscription, Tables,
};
pub use crate::store::{FaultLink, RunOutcome};

/// All subscriptions since the database was created.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// use scoop::{InMemory, simulation};
///
/// assert!(simulation::subscriptions(&InMemory::new()).is_empty());
/// ```
pub fn subscriptions(database: &InMemory) -> Vec<Subscription> {
    database.memory().subscriptions()
}

/// The rows of the tables beside the event log.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// use scoop::{InMemory, simulation};
///
/// assert!(simulation::tables(&InMemory::new()).signals.is_empty());
/// ```
pub fn tables(database: &InMemory) -> Tables {
    database.memory().tables()
}

/// All events of entities, by entity, and in the order in which they were written.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// use scoop::{InMemory, simulation};
///
/// assert!(simulation::entity_events(&InMemory::new()).is_empty());
/// ```
pub fn entity_events(database: &InMemory) -> Vec<EntityEvent> {
    database.memory().all_entity_events()
}

/// The keys and topics of the messages that wait to be joined.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// use scoop::{InMemory, simulation};
///
/// assert!(simulation::waiting_members(&InMemory::new()).is_empty());
/// ```
pub fn waiting_members(database: &InMemory) -> Vec<(String, String)> {
    database.memory().waiting_members()
}

/// From now on this thread derives its ids from this seed; `None` makes them random again.
pub fn seed(seed: impl Into<Option<u64>>) {
    crate::util::ids::seed(seed.into());
}
