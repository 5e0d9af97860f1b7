//! Runs and their history in the memory of one program: the tables without a server.
//!
//! Each operation is one function of the whole state, under a lock. So it is atomic and isolated, like a serializable
//! transaction. It does what the statement of the same purpose does in `sql/`: a change in one of the two must be
//! repeated in the other.

mod begun_steps;
mod cancel;
mod claim;
mod clock;
#[cfg(feature = "simulation")]
pub(crate) mod contents;
mod definitions;
mod due;
mod entity;
mod error_queue;
mod event_log;
mod faults;
mod free;
mod inspect;
mod join;
mod launch;
mod limit;
mod ready_queue;
mod repair;
mod rollback_history;
mod row;
mod schedule;
mod session;
mod settle;
mod signal;
mod sizes;
mod state;
mod status;
mod subscriptions;
mod wake;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::clock::Clock;
use self::faults::Faults;
pub use self::inspect::{LoggedEvent, WorkingRun};
pub(crate) use self::session::MemorySession;
use self::state::State;
#[cfg(feature = "simulation")]
pub use self::{faults::FaultLink, row::RunOutcome};
use crate::completion::Completions;

/// The handle of one process to a database in memory. Cheap to clone.
#[derive(Clone)]
pub(crate) struct MemoryStore {
    database: Arc<Database>,
    /// The number of the process. Handles with the same number share its link and its sessions.
    process: u64,
    link: Faults,
}

struct Database {
    state: Mutex<State>,
    clock: Clock,
    completions: Arc<Completions>,
}

impl MemoryStore {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.database, &other.database)
    }

    pub(crate) fn new(starts_at: ::time::OffsetDateTime) -> Self {
        let (state, clock) = (State::default(), Clock::new(starts_at));
        let completions = state.completions.clone();
        let database = Database { state: Mutex::new(state), clock, completions };
        Self { database: Arc::new(database), process: 0, link: Faults::default() }
    }

    /// The same database for another process, which reaches it through this link.
    #[cfg(feature = "simulation")]
    pub(crate) fn through(&self, link: Arc<dyn FaultLink>) -> Self {
        let process = self.lock().new_process();
        Self { database: self.database.clone(), process, link: Faults::through(link) }
    }

    /// Carries out an operation: all of it, or, if it fails, nothing.
    async fn run<T>(
        &self,
        operation: &'static str,
        carry_out: impl FnOnce(&mut State) -> sqlx::Result<T>,
    ) -> sqlx::Result<T> {
        self.link.before(operation).await?;
        let answer = self.at_once(carry_out);
        self.link.after(operation).await.inspect_err(crate::util::retries::note)?;
        answer
    }

    /// Like `run`, without fault injection.
    fn at_once<T>(&self, carry_out: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let last = state.now.max(state.newest);
        state.now = Some(self.database.clock.now_after(last));
        carry_out(&mut state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.database.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn completions(&self) -> &Completions {
        &self.database.completions
    }

    pub(crate) fn time(&self) -> ::time::OffsetDateTime {
        self.database.clock.now()
    }

    pub(crate) fn advance(&self, by: std::time::Duration) {
        self.database.clock.advance(by);
        // Workers wait for the next due time by the old clock, and have to check again.
        self.lock().notify(uuid::Uuid::nil());
    }
}
