//! A process of a simulation, with a link to its database that can fail.

use std::sync::Arc;

use super::builder::Database;
use crate::store::{FaultLink, MemoryStore};
use crate::{Builder, InMemory};

/// One of several processes of a simulation on the same database, each with a [`FaultLink`] of its own. Cheap
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
/// use scoop::simulation::{FaultLink, Process};
/// use scoop::{InMemory, Scoop};
///
/// /// Dies before its first claim.
/// struct Doomed;
///
/// impl FaultLink for Doomed {
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
/// let scoop = Scoop::builder().simulated_process(&process).start().await?;
/// process.disconnect();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Process {
    memory: MemoryStore,
    history_entries: Option<usize>,
}

impl Process {
    /// A process that reaches the database through this link.
    pub fn new(database: &InMemory, link: Arc<dyn FaultLink>) -> Self {
        Self { memory: database.memory().through(link), history_entries: None }
    }

    /// Sets the number of suspensions and launches that its rollbacks read at a time. With a small number, the
    /// history of an ordinary run needs several reads.
    #[must_use]
    pub fn reading(self, entries: usize) -> Self {
        Self { history_entries: Some(entries), ..self }
    }

    /// Ends its sessions, as if the process had died or lost its connection: from now on the other processes take it
    /// for dead. If it is alive, it opens another session.
    pub fn disconnect(&self) {
        self.memory.cut();
    }
}

impl Builder {
    /// Runs on a database in memory as one of several simulated processes. With the feature `simulation`.
    pub fn simulated_process(mut self, process: &Process) -> Self {
        if let Some(entries) = process.history_entries {
            self.settings.history_entries = entries;
        }
        self.on(Database::Memory(process.memory.clone()))
    }
}
