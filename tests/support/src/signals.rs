//! How tests and steps wait for each other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use scoop::tree::Tree;
use scoop::{Handle, Outcome, RuntimeError};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// The time limit for an expected event, even on a busy machine.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// Waits until the condition holds. Fails after a minute.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + RETRY_FOR;
    while !condition().await {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a hierarchy with a time limit. The failure shows the tree.
#[allow(async_fn_in_trait, reason = "tests await it where they call it")]
pub trait Ends {
    /// Waits for the outcome.
    async fn ends(&self) -> Result<Outcome, RuntimeError>;

    /// Waits until the tree meets the condition, and returns that tree.
    async fn comes_to(&self, condition: impl Fn(&Tree) -> bool) -> Result<Tree, RuntimeError>;
}

impl Ends for Handle {
    async fn ends(&self) -> Result<Outcome, RuntimeError> {
        match tokio::time::timeout(RETRY_FOR, self.wait()).await {
            Ok(outcome) => outcome,
            Err(_) => panic!("timed out waiting for the end of this:\n{}", self.tree().await?),
        }
    }

    async fn comes_to(&self, condition: impl Fn(&Tree) -> bool) -> Result<Tree, RuntimeError> {
        let deadline = Instant::now() + RETRY_FOR;
        loop {
            let tree = self.tree().await?;
            if condition(&tree) {
                return Ok(tree);
            }
            assert!(Instant::now() < deadline, "timed out waiting for a change of this:\n{tree}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Work that takes a while, where a scenario says so. Nothing may depend on how long.
pub async fn takes(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

/// A place in a step where the test holds it. Clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    arrived: Arc<Semaphore>,
    opened: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), opened: Arc::new(Semaphore::new(0)) }
    }
}

impl Gate {
    /// Called by the step: reports its arrival, and waits to be let through.
    pub async fn pass(&self) {
        self.arrived.add_permits(1);
        self.opened.acquire().await.expect("a gate is never closed for good").forget();
    }

    /// Waits for so many further arrivals.
    pub async fn arrivals(&self, count: u32) {
        let arrived = tokio::time::timeout(RETRY_FOR, self.arrived.acquire_many(count)).await;
        let Ok(arrived) = arrived else {
            panic!(
                "timed out waiting for {count} arrivals at the gate; there were {}",
                self.arrived.available_permits()
            );
        };
        arrived.expect("a gate is never closed for good").forget();
    }

    /// The number of arrivals without a wait for them.
    pub fn arrived(&self) -> usize {
        self.arrived.available_permits()
    }

    /// Lets so many through, now or when they arrive.
    pub fn open(&self, count: usize) {
        self.opened.add_permits(count);
    }
}

/// The notes of steps, in order. Clones are the same list.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Adds one.
    pub fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note.into());
    }

    /// All of them.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
