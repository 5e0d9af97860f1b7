//! A database in memory for each test, in virtual time.

use std::time::{Duration, SystemTime};

use scoop::retention::Retention;
use scoop::{Builder, InMemory, Scoop};

use crate::{History, Store};

/// A database of one test.
pub struct Database(InMemory);

impl Database {
    /// Whether the programs run in memory.
    pub const IN_MEMORY: bool = true;

    /// A fresh one.
    pub async fn new() -> Self {
        Self(InMemory::new())
    }

    /// The builder of a program on this database.
    pub fn scoop(&self) -> Builder {
        Scoop::builder().in_memory_database(&self.0).retention(Retention::forever())
    }

    /// A client that launches and looks up.
    pub fn client(&self) -> Scoop {
        let client = std::pin::pin!(self.scoop().client());
        let client = futures_util::FutureExt::now_or_never(client);
        client.expect("there is nothing to wait for").expect("there is nothing to go wrong")
    }

    /// How many runs are unfinished.
    pub async fn unfinished(&self) -> i64 {
        count(self.0.working_set().len())
    }

    /// How many of them do not wait for others, nor for an operator.
    pub async fn able_to_go_on(&self) -> i64 {
        let runs = self.0.working_set();
        let waits_for_others = |run: &scoop::WorkingRun| {
            let open = runs
                .iter()
                .filter(|other| !matches!(other.state, scoop::RowState::Ended | scoop::RowState::Failed));
            open.filter_map(|other| other.lineage.parent()).any(|parent| parent == run.lineage)
        };
        let able = runs.iter().filter(|run| match run.state {
            scoop::RowState::Stuck | scoop::RowState::Failed => false,
            scoop::RowState::Waiting => !waits_for_others(run),
            _ => true,
        });
        count(able.count())
    }

    /// The virtual time.
    pub async fn time(&self) -> SystemTime {
        self.0.now()
    }

    /// Moves the clock. Other than on PostgreSQL, sleeps, deadlines, pauses and rates end thereby.
    pub async fn grow_older(&self, by: Duration) {
        self.0.advance(by);
    }

    /// All recorded events.
    pub async fn history(&self) -> History {
        History::of_log(self.0.event_log())
    }
}

impl Store for Database {
    async fn create() -> Self {
        Self::new().await
    }

    fn scoop(&self) -> Builder {
        self.scoop()
    }

    async fn history(&self) -> History {
        self.history().await
    }
}

fn count(runs: usize) -> i64 {
    i64::try_from(runs).expect("there are few")
}
