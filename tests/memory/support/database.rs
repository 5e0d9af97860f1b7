//! A database of its own for each test.

use std::time::SystemTime;

use scoop::{Builder, InMemory, Scoop};

use super::rows::History;

/// A database of one test.
pub(crate) struct Database(InMemory);

impl Database {
    pub(crate) async fn new() -> Self {
        Self(InMemory::new())
    }

    /// The builder of a program on this database.
    pub(crate) fn scoop(&self) -> Builder {
        Scoop::builder().in_memory_on(&self.0)
    }

    /// A client that launches and looks up.
    pub(crate) fn client(&self) -> Scoop {
        let client = std::pin::pin!(self.scoop().client());
        let client = futures_util::FutureExt::now_or_never(client);
        client.expect("there is nothing to wait for").expect("there is nothing to go wrong")
    }

    /// How many runs are unfinished.
    pub(crate) async fn unfinished(&self) -> i64 {
        count(self.0.working_set().len())
    }

    /// How many of them do not wait for others, nor for an operator.
    pub(crate) async fn able_to_go_on(&self) -> i64 {
        let runs = self.0.working_set();
        let waits_for_others = |run: &scoop::WorkingRun| {
            let open = runs.iter().filter(|other| other.state != "ended");
            open.filter_map(|other| other.lineage.parent()).any(|parent| parent == run.lineage)
        };
        let able = runs.iter().filter(|run| match run.state {
            "stuck" => false,
            "waiting" => !waits_for_others(run),
            _ => true,
        });
        count(able.count())
    }

    /// The virtual time.
    pub(crate) async fn time(&self) -> SystemTime {
        self.0.now()
    }

    /// All recorded events.
    pub(crate) async fn history(&self) -> History {
        History::of_log(self.0.event_log())
    }
}

fn count(runs: usize) -> i64 {
    i64::try_from(runs).expect("there are few")
}
