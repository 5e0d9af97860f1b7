//! The one or the other store, chosen when a program starts.

use std::collections::BTreeMap;
use std::sync::Arc;

use scoop_core::{Definition, Failure, Run};
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use uuid::Uuid;

use super::client::Launch;
use super::engine::{Disowned, GiveUp, History, Woken};
use super::repair::{Page, Remedied, Repaired};
use super::requests::Cancelled;
use super::topology::Struck;
use super::{
    Claimed, FailedPart, Fired, Key, Launched, Memory, Parent, Progress, Published, Redelivery, Release,
    Settled, Settlement, Standing, Tables, Target, Undone, Unreadable,
};
use crate::children::Child;
use crate::clock::Now;
use crate::rebuild::Rebuild;
use crate::repair::{FailedCompensation, Intervention, Refusal, StuckRun};
use crate::topology::ListedHandler;
use crate::tree::RunRow;

/// Topics and names of sagas, pair by pair.
pub(crate) type Pairs<'a> = (&'a [String], &'a [String]);

/// Where runs and their history are kept.
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

/// Declares operations that both stores have; what each does is said there.
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
    async fn handlers_ready(&self, pairs: Pairs<'_>, progress: &Progress) -> (Vec<String>, Vec<String>);
    async fn claim(
        &self, worker: Uuid, identifier: &str, pairs: Pairs<'_>, limit: usize, shares: &BTreeMap<String, usize>,
        progress: &mut Progress,
    ) -> Vec<Result<Claimed, Unreadable>>;
    async fn settle(&self, identifier: &str, settlements: &[Settlement]) -> BTreeMap<(Uuid, i64), Settled>;
    async fn wake(&self, parents: &[Parent]) -> Vec<String>;
    async fn wake_here(
        &self, parents: &[Parent], worker: Uuid, identifier: &str, pairs: Pairs<'_>, last_steps: &[String],
        room: usize,
    ) -> Woken;
    async fn disown(&self, worker: Uuid, in_flight: impl Fn() -> Vec<Uuid>) -> Disowned;
    async fn release(&self, releases: &[Release]) -> ();
    async fn reap(&self, worker: Uuid) -> (usize, u64);
    async fn sweep(&self) -> Vec<String>;
    async fn leave(&self, worker: Uuid) -> ();
    async fn notify(&self, worker: Uuid) -> ();

    async fn give_up(&self, key: Key) -> Option<GiveUp>;
    async fn overdue(&self, limit: i64) -> Vec<Parent>;
    async fn stops(&self, keys: &[Key]) -> Vec<(Uuid, f64)>;
    async fn due(&self, pairs: Pairs<'_>, worker: Uuid) -> (Option<f64>, bool);
    async fn now(&self) -> Now;
    async fn set_aside(&self, key: Key, reason: &str) -> ();
    async fn hold(&self, key: Key, failed: &FailedPart) -> ();
    async fn retry_stuck(&self, pairs: Pairs<'_>) -> u64;
    async fn history(&self, definition: &Definition, run: &Run) -> History;
    async fn children(
        &self, run: Uuid, handler: &str, newest: bool, reply: &str, unseen: &[&str],
    ) -> Vec<Child>;

    async fn launch_alone(&self, messages: &[Launched]) -> Launch;
    async fn launch_here(&self, worker: Uuid, identifier: &str, messages: &[Launched]) -> Launch;
    async fn standing(&self, root: Uuid, message: Uuid) -> Standing;
    async fn root_message(&self, root: Uuid) -> Option<Uuid>;
    async fn tree(&self, message: Uuid) -> Vec<RunRow>;

    async fn find_target(&self, id: Uuid) -> Option<Target>;
    async fn cancel(&self, target: &Target, request: &Failure) -> Cancelled;
    async fn undo(&self, target: &Target, request: &Failure) -> Undone;
    async fn repair(&self, target: &Target, asked: &Remedied<'_>) -> Result<Repaired, Refusal>;
    async fn failed_compensations(&self, page: Page) -> Vec<FailedCompensation>;
    async fn stuck_runs(&self, page: Page) -> Vec<StuckRun>;
    async fn interventions(&self, root: Uuid) -> Vec<Intervention>;

    async fn redeliver(
        &self, topic: &str, since: OffsetDateTime, after: Option<Uuid>, limit: usize,
    ) -> Redelivery;

    async fn publish(&self, pairs: Pairs<'_>) -> ();
    async fn listed_handlers(&self) -> Vec<ListedHandler>;
    async fn strike_out(&self, topic: &str, handler: &str, drops: bool) -> Struck;
    async fn publish_schedules(&self, schedules: &[Published<'_>]) -> ();
    async fn schedule_wait(&self, pairs: Pairs<'_>) -> Option<f64>;
    async fn fire_schedule(&self, pairs: Pairs<'_>) -> Fired;
    async fn trigger(&self, topic: &str, handler: &str) -> Option<(Uuid, Uuid, Vec<String>)>;
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

    /// What only a database has: transactions in which others can write, too.
    fn tables(&self) -> sqlx::Result<&Tables> {
        match self {
            Self::Postgres(tables) => Ok(tables),
            Self::Memory(_) => Err(sqlx::Error::Configuration(IN_MEMORY.into())),
        }
    }

    /// Whether everybody hears at once that a process is dead, and nobody has to look.
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

/// Why there is no transaction.
const IN_MEMORY: &str = "scoop runs in memory here, where no transaction of a database can be taken part in";
