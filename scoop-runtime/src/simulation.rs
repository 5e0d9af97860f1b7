//! What a simulation needs of a database in memory: processes whose every operation can fail, and ids that
//! follow from a seed. Of the feature `simulation`, which costs nothing where it is off.
//!
//! A run is the same each time if it has one thread (`current_thread`) with a paused clock, a
//! [`seed`] and a database that [starts at a fixed time](crate::InMemory::starting_at), and if the code of the sagas
//! and the [`Link`]s draw nothing by chance themselves.

use std::sync::Arc;
use std::time::Duration;

use crate::InMemory;
pub use crate::bug::{Bug, make};
pub use crate::store::Link;
use crate::store::Memory;

/// That a handler listened on a topic. Times are those of the database since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The topic.
    pub topic: String,
    /// The handler.
    pub handler: String,
    /// Since when.
    pub since: Duration,
    /// Until when, if it was [retired](crate::Scoop::retire_handler).
    pub until: Option<Duration>,
    /// Whether [what waited for it](crate::Retire::dropping_what_waits) was dropped then.
    pub dropped: bool,
}

/// Who has listened where, from the beginning on.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// use scoop::{InMemory, simulation};
///
/// assert!(simulation::listings(&InMemory::new()).is_empty());
/// ```
pub fn listings(database: &InMemory) -> Vec<Listing> {
    database.memory().listings()
}

/// From now on the ids that this thread draws follow from this seed; with `None`, from nothing again.
pub fn seed(seed: impl Into<Option<u64>>) {
    crate::ids::seed(seed.into());
}

/// One of several processes of a simulation on the same database, each with a [`Link`] of its own. Cheap
/// to clone.
///
/// ```
/// # extern crate scoop_runtime as scoop;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), scoop_runtime::RuntimeError> {
/// use std::io;
/// use std::sync::Arc;
///
/// use futures_util::future::{BoxFuture, FutureExt, pending, ready};
/// use scoop::simulation::{Link, Process};
/// use scoop::{InMemory, Scoop};
///
/// /// Dies before its first claim.
/// struct Doomed;
///
/// impl Link for Doomed {
///     fn before(&self, operation: &'static str) -> BoxFuture<'static, io::Result<()>> {
///         if operation == "claim" { pending().boxed() } else { ready(Ok(())).boxed() }
///     }
///     fn after(&self, _: &'static str) -> BoxFuture<'static, io::Result<()>> {
///         ready(Ok(())).boxed()
///     }
///     fn heard(&self) -> BoxFuture<'static, u32> {
///         ready(1).boxed()
///     }
/// }
///
/// let process = Process::new(&InMemory::new(), Arc::new(Doomed));
/// let scoop = Scoop::builder().in_memory_as(&process).start().await?;
/// process.cut();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Process {
    memory: Memory,
    history_entries: Option<usize>,
}

impl Process {
    /// A process that reaches the database through this link.
    pub fn new(database: &InMemory, link: Arc<dyn Link>) -> Self {
        Self { memory: database.memory().through(link), history_entries: None }
    }

    /// Has its rollbacks read so few suspensions and launches at a time, so that the history of an ordinary run is a long
    /// one.
    #[must_use]
    pub fn reading(self, entries: usize) -> Self {
        Self { history_entries: Some(entries), ..self }
    }

    /// Ends its sessions, as if it had died or its connection were lost: from now on the others take it for
    /// dead. If it lives, it opens another one.
    pub fn cut(&self) {
        self.memory.cut();
    }

    pub(crate) fn memory(&self) -> Memory {
        self.memory.clone()
    }

    pub(crate) fn history_entries(&self) -> Option<usize> {
        self.history_entries
    }
}
