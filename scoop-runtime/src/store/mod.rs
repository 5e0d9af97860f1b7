//! The store of runs and their history: PostgreSQL, or the memory of one program, chosen when a program starts.
//!
//! This folder has the operations and the values that they take and return. [`postgres`] and [`memory`] implement them,
//! in files of the same names.

mod definitions;
mod launch;
mod memory;
mod postgres;
mod queue_cursors;
mod requests;
mod schedule;
mod settlement;
mod types;
mod unhandled;

pub(crate) use definitions::{Lanes, LivingWorker, PublishedDefinition, Refusing, Registered, SetAside};
pub(crate) use launch::{Claimer, Launch, Launched, is_bulky, known_before, parts, prepare};
#[cfg(feature = "simulation")]
pub use memory::Link;
pub use memory::{LoggedEvent, WorkingRun};
pub(crate) use memory::{Memory, MemorySession};
#[cfg(test)]
pub(crate) use postgres::tests;
pub(crate) use postgres::{
    Access, Connections, MARKED, Opened, PostgresSession, RolledBack, Schema, Sessions, Tables, check, files,
    migrate, refusal, roll_back, unfit_tables,
};
pub(crate) use queue_cursors::Progress;
pub use requests::ListedHandler;
pub(crate) use requests::{
    Asked, Cancelled, HandlerOutcome, Page, Redelivery, Remedied, Repaired, Standing, Struck, Target, Undone,
};
pub(crate) use schedule::{Fired, Published, Taken, Ticked};
pub(crate) use settlement::{Settled, Settlement, Shape};
pub(crate) use types::{
    Claimed, Committed, Disowned, FailedPart, Freed, GiveUp, History, Key, Parent, Reaped, Release,
    Surroundings, Unclaimed, Wanted, Woken, no_failure, readable, timestamps,
};
pub(crate) use unhandled::Unhandled;

use std::collections::BTreeMap;
use std::sync::Arc;

use scoop_core::{Beginning, Entry, EventKind, Failure, RecordedStep, RollbackNames, Run};
use serde_json::Value;
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::repair::Refusal;
use crate::saga::children::ChildQuery;
use crate::saga::registry::{Renamed, Subscription};
use crate::settings::Backoff;
use crate::tree::{Extent, TreeRows};
use crate::util::when::Now;
use crate::{CancellationRequest, Child, FailedCompensation, Intervention, Named, Rebuild, StuckRun};

/// Topics and names of sagas, pair by pair.
pub(crate) type Pairs<'a> = (&'a [String], &'a [String]);

/// The store of runs and their history.
#[derive(Clone)]
pub(crate) enum Store {
    Postgres(Arc<Tables>),
    Memory(Memory),
}

impl From<Tables> for Store {
    fn from(tables: Tables) -> Self {
        Self::Postgres(Arc::new(tables))
    }
}

/// Declares operations that both stores have, each documented there.
macro_rules! either {
    ($(async fn $operation:ident(&self $(, $argument:ident: $type:ty)* $(,)?) -> $answer:ty;)*) => {
        impl Store {
            $(pub(crate) async fn $operation(&self $(, $argument: $type)*) -> sqlx::Result<$answer> {
                match self {
                    Self::Postgres(tables) => tables.$operation($($argument),*).await,
                    Self::Memory(memory) => memory.$operation($($argument),*).await,
                }
            })*
        }
    };
}

either! {
    async fn lanes_ready(&self, lanes: &Lanes, progress: &Progress) -> Lanes;
    async fn claim(
        &self, worker: Uuid, identifier: &str, lanes: &Lanes, limit: usize, shares: &BTreeMap<String, usize>,
        progress: &mut Progress,
    ) -> Vec<Result<Claimed, Unclaimed>>;
    async fn settle(&self, identifier: &str, settlements: &[Settlement]) -> BTreeMap<(Uuid, i64), Settled>;
    async fn wake(&self, parents: &[Parent]) -> Vec<String>;
    async fn wake_here(
        &self, parents: &[Parent], worker: Uuid, identifier: &str, lanes: &Lanes, room: (usize, bool),
    ) -> Woken;
    async fn disown(&self, worker: Uuid, in_flight: impl Fn() -> Vec<Uuid>, backoff: Backoff) -> Disowned;
    async fn release(&self, releases: &[Release]) -> u64;
    async fn reap(&self, worker: Uuid, backoff: Backoff) -> Reaped;
    async fn leave(&self, worker: Uuid, backoff: Backoff) -> Freed;
    async fn notify(&self, worker: Uuid) -> ();

    async fn give_up(&self, key: Key) -> Option<GiveUp>;
    async fn is_held(&self, key: Key) -> bool;
    async fn overdue(&self, limit: i64) -> Vec<Parent>;
    async fn stops(&self, keys: &[Key]) -> Vec<(Uuid, f64)>;
    async fn due(&self, lanes: &Lanes, worker: Uuid) -> (Option<f64>, bool, Option<i64>);
    async fn now(&self) -> Now;
    async fn set_aside(&self, refusal: Refusing<'_>) -> SetAside;
    async fn hold(&self, key: Key, failed: &FailedPart) -> bool;
    async fn recorded(&self, run: Key, identifier: &str, kind: EventKind) -> bool;
    async fn history(&self, names: &RollbackNames, handler: &str, run: &Run, limit: usize) -> History;
    async fn entries_until(
        &self, names: &RollbackNames, handler: &str, run: &Run, limit: usize, until: i64,
    ) -> Vec<Entry>;
    async fn count_history(&self, handler: &str, run: &Run, until: i64) -> Beginning;
    async fn repetitions(&self, handler: &str, run: &Run, steps: &[String], until: i64) -> u32;
    async fn values(&self, handler: &str, run: &Run, wanted: &Wanted) -> BTreeMap<String, Value>;
    async fn repeats(&self, run: &Run) -> bool;
    async fn children(&self, asked: ChildQuery<'_>) -> Vec<Child>;

    async fn launch_alone(&self, messages: &[Launched]) -> Launch;
    async fn launch_here(&self, claimer: Claimer<'_>, messages: &[Launched]) -> Launch;
    async fn standing(&self, root: Uuid, message: Uuid) -> Standing;
    async fn root_message(&self, root: Uuid) -> Option<Uuid>;
    async fn tree(&self, message: Uuid, extent: Extent) -> TreeRows;

    async fn find_target(&self, id: Uuid) -> Option<Target>;
    async fn named(&self, id: Uuid) -> Option<Named>;
    async fn cancellations(&self, root: Uuid) -> Vec<CancellationRequest>;
    async fn cancel(&self, target: &Target, request: &Failure, asked: Asked) -> Cancelled;
    async fn undo(&self, target: &Target, request: &Failure, asked: Asked) -> Undone;
    async fn repair(&self, target: &Target, asked: &Remedied<'_>) -> Result<Repaired, Refusal>;
    async fn failed_compensations(&self, page: Page) -> Vec<FailedCompensation>;
    async fn stuck_runs(&self, page: Page) -> Vec<StuckRun>;
    async fn interventions(&self, root: Uuid) -> Vec<Intervention>;

    async fn redeliver(
        &self, topic: &str, since: OffsetDateTime, after: Option<Uuid>, limit: usize,
    ) -> Redelivery;

    async fn publish(&self, subscriptions: &[Subscription]) -> ();
    async fn publish_definitions(&self, definitions: &[PublishedDefinition]) -> Vec<(String, i32)>;
    async fn definition_steps(&self, definition: i32, handler: &str) -> Option<Vec<RecordedStep>>;
    async fn renamed_sagas(&self, subscriptions: &[Subscription]) -> Vec<Renamed>;
    async fn enlist(&self, registered: Registered<'_>, changed: &[String]) -> ();
    async fn living_workers(&self) -> Vec<LivingWorker>;
    async fn abandoned_sagas(&self) -> Vec<(String, String)>;
    async fn listed_handlers(&self) -> Vec<ListedHandler>;
    async fn strike_out(&self, topic: &str, handler: &str, drops: bool) -> Struck;
    async fn publish_schedules(&self, schedules: &[Published<'_>]) -> ();
    async fn schedule_wait(&self, pairs: Pairs<'_>) -> Option<f64>;
    async fn fire_schedule(&self, pairs: Pairs<'_>) -> Fired;
    async fn trigger(&self, topic: &str, handler: &str, root: Uuid, asked: Asked) -> Option<Vec<String>>;
    async fn rebuild(&self) -> Result<Rebuild, i64>;
}

impl Store {
    /// Publishes messages, in a transaction of the caller.
    pub(crate) async fn launch(
        &self,
        executor: impl PgExecutor<'_>,
        messages: &[Launched],
    ) -> sqlx::Result<Launch> {
        self.tables()?.launch(executor, messages).await
    }

    /// Applies a settlement inside the transaction of a step, if its claim still holds.
    pub(crate) async fn settle_within(
        &self,
        connection: &mut PgConnection,
        identifier: &str,
        settlement: &Settlement,
        claim: &str,
    ) -> sqlx::Result<Option<Settled>> {
        self.tables()?.settle_within(connection, identifier, settlement, claim).await
    }

    /// The database: only it has transactions in which user code can write, too.
    fn tables(&self) -> sqlx::Result<&Tables> {
        match self {
            Self::Postgres(tables) => Ok(tables),
            Self::Memory(_) => Err(sqlx::Error::Configuration(IN_MEMORY.into())),
        }
    }

    /// Whether the death of a process is reported at once, without polling.
    pub(crate) fn tells_of_deaths(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Closes its connections, if it has any.
    pub(crate) async fn close(&self) {
        if let Self::Postgres(tables) = self {
            tables.sessions().close().await;
        }
    }
}

/// The error of operations that need a transaction of a database.
const IN_MEMORY: &str = "scoop runs in memory here, where no transaction of a database can be taken part in";
