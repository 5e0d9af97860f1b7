//! The queue of settlements that are written in batches.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};

use crate::store::Unhandled;
use crate::store::{SettleResult, Settlement};

/// The capacity of the queue of outcomes. A sender waits while it is full.
const CHANNEL_MAX: usize = 1_000;

pub(in crate::engine) type Answer = Result<SettleResult, SettleError>;

pub(in crate::engine) struct Pending {
    pub(super) settlement: Settlement,
    pub(super) answer: oneshot::Sender<Answer>,
}

pub(in crate::engine) type OutcomeQueue = Arc<Mutex<mpsc::Receiver<Pending>>>;

/// Accepts outcomes and persists them.
pub(in crate::engine) struct Settler {
    queue: mpsc::Sender<Pending>,
}

/// Why an outcome was not written.
#[derive(Debug)]
pub(in crate::engine) enum SettleError {
    /// Another worker has taken the run over.
    TakenOver,
    /// The database refuses this outcome, and will refuse it again: the error.
    Refused(String),
    /// A message of it requires a handler, and there is none.
    Unhandled(Unhandled),
    /// The engine is gone.
    Stopped,
}

impl Settler {
    pub(in crate::engine) fn new() -> (Self, OutcomeQueue) {
        let (queue, outcomes) = mpsc::channel(CHANNEL_MAX);
        (Self { queue }, Arc::new(Mutex::new(outcomes)))
    }

    /// Returns when the outcome is written, together with others.
    pub(in crate::engine) async fn settle(&self, settlement: Settlement) -> Answer {
        let (answer, answered) = oneshot::channel();
        let sent = self.queue.send(Pending { settlement, answer }).await;
        sent.map_err(|_| SettleError::Stopped)?;
        answered.await.unwrap_or(Err(SettleError::Stopped))
    }
}
