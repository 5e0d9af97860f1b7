//! The user code that runs at this moment, and its end when the engine stops waiting for it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::model::running_step::RunningStep;
use crate::store::Store;
use crate::util::sync::{Mutex, lock};

/// The time for abandoned code to end. Code that blocks its thread never does.
const LETTING_GO_MAX: Duration = Duration::from_secs(2);

tokio::task_local! {
    /// The user code that this task runs, and its database.
    static CURRENT: (Arc<RunningStep>, Store);
}

/// The user code that runs in this process.
#[derive(Default)]
pub(in crate::engine) struct Running {
    steps: Mutex<HashMap<Uuid, Arc<RunningStep>>>,
    abandoned: CancellationToken,
    /// The time at which the engine stops waiting for abandoned code.
    given_up_at: OnceLock<Instant>,
}

/// Why the engine stops waiting for user code.
pub(in crate::engine) enum Stop {
    /// It has taken longer than this, its limit.
    Late(Duration),
    Abandoned,
}

/// A call of user code.
pub(in crate::engine) struct Entry<'a>(&'a Running, Arc<RunningStep>);

/// The step whose code this is, if its engine works on this database. Code that a step has spawned is none of it.
pub(crate) fn current_step(store: &Store) -> Option<Arc<RunningStep>> {
    CURRENT.try_with(|(step, own)| own.is_same(store).then(|| step.clone())).ok().flatten()
}

impl Running {
    /// Enters the call of this step.
    pub(in crate::engine) fn enter(&self, saga: &str, run: Uuid, step: &str) -> Entry<'_> {
        let step = RunningStep { saga: saga.to_owned(), step: step.to_owned(), run: run.into() };
        let step = Arc::new(step);
        lock(&self.steps).insert(run, step.clone());
        Entry(self, step)
    }

    /// All of it, the oldest run first.
    pub(in crate::engine) fn steps(&self) -> Vec<RunningStep> {
        let mut steps: Vec<_> = lock(&self.steps).values().map(|step| RunningStep::clone(step)).collect();
        steps.sort_unstable_by_key(|step| step.run.uuid());
        steps
    }

    /// Has all of it stopped, at its next `await`.
    pub(in crate::engine) fn abandon(&self) {
        self.abandoned.cancel();
    }

    /// Returns when code with this limit is to be stopped.
    pub(in crate::engine) async fn stop(&self, limit: Option<Duration>) -> Stop {
        let late = async {
            match limit {
                Some(limit) => {
                    tokio::time::sleep(limit).await;
                    Stop::Late(limit)
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            stop = late => stop,
            () = self.abandoned.cancelled() => Stop::Abandoned,
        }
    }

    /// Returns when the engine stops waiting for abandoned code that has not ended.
    pub(in crate::engine) async fn given_up(&self) {
        self.abandoned.cancelled().await;
        let at = self.given_up_at.get_or_init(|| Instant::now() + LETTING_GO_MAX);
        tokio::time::sleep_until(*at).await;
    }
}

impl Entry<'_> {
    /// The code of this call, which works on this database.
    pub(in crate::engine) fn contains<T>(
        &self,
        store: &Store,
        code: impl Future<Output = T>,
    ) -> impl Future<Output = T> {
        CURRENT.scope((self.1.clone(), store.clone()), code)
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        lock(&self.0.steps).remove(&self.1.run.uuid());
    }
}
