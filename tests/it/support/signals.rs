//! How tests and steps wait for each other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use scoop::{Handle, Outcome, RuntimeError, Tree};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// How long a test waits for what must happen, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns when the condition holds. Fails when it does not come to.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "in vain waited for: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waiting for a hierarchy, but not for ever: when it is in vain, the failure shows the tree.
pub(crate) trait Ends {
    /// How it ended.
    async fn ends(&self) -> Result<Outcome, RuntimeError>;

    /// Returns when a look at its runs is as it should be, with what was seen then.
    async fn comes_to(&self, condition: impl Fn(&Tree) -> bool) -> Result<Tree, RuntimeError>;
}

impl Ends for Handle {
    async fn ends(&self) -> Result<Outcome, RuntimeError> {
        match tokio::time::timeout(PATIENCE, self.wait()).await {
            Ok(outcome) => outcome,
            Err(_) => panic!("in vain waited for the end of this:\n{}", self.tree().await?),
        }
    }

    async fn comes_to(&self, condition: impl Fn(&Tree) -> bool) -> Result<Tree, RuntimeError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let tree = self.tree().await?;
            if condition(&tree) {
                return Ok(tree);
            }
            assert!(Instant::now() < deadline, "in vain waited for something else than this:\n{tree}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Work that takes a while, where a scenario says so. Nothing may depend on how long.
pub(crate) async fn takes(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

/// A place in a step where the test holds it. Clones are the same gate.
#[derive(Clone)]
pub(crate) struct Gate {
    arrived: Arc<Semaphore>,
    opened: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), opened: Arc::new(Semaphore::new(0)) }
    }
}

impl Gate {
    /// Called by the step: says that it is here, and waits to be let through.
    pub(crate) async fn pass(&self) {
        self.arrived.add_permits(1);
        self.opened.acquire().await.expect("a gate is never closed for good").forget();
    }

    /// Returns when so many more have come.
    pub(crate) async fn arrivals(&self, count: u32) {
        let arrived = tokio::time::timeout(PATIENCE, self.arrived.acquire_many(count)).await;
        let Ok(arrived) = arrived else {
            panic!(
                "in vain waited for {count} to come to the gate; {} came",
                self.arrived.available_permits()
            );
        };
        arrived.expect("a gate is never closed for good").forget();
    }

    /// How many have come that nobody waited for.
    pub(crate) fn arrived(&self) -> usize {
        self.arrived.available_permits()
    }

    /// Lets so many through, now or when they come.
    pub(crate) fn open(&self, count: usize) {
        self.opened.add_permits(count);
    }
}

/// What steps have to say, in order. Clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Says it.
    pub(crate) fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note.into());
    }

    /// All that was said.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
