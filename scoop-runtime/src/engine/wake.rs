//! Tells whoever waits: the claimer of this process, parents, other processes, and clients.
//!
//! All of it only makes things quick. A parent that nobody told is found by the sweep (after a
//! death, after an answer that was lost, and once a minute), everything else by polling.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use super::Engine;
use crate::store::Parent;

/// How often other processes are notified at most: each notification takes a lock that all
/// databases of the server share.
const NOTIFY_PAUSE: Duration = Duration::from_millis(5);

const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// How many parents are looked at in one statement.
const BATCH_MAX: usize = 1_000;

/// Where the parents come in.
pub(super) type Parents = mpsc::UnboundedReceiver<Parent>;

/// Who is to be told.
pub(super) struct Wakeups {
    /// There may be something to claim.
    pub(super) claimer: Notify,
    /// There may be something to claim soon, by a commit that nobody will tell us of.
    pub(super) expected: AtomicBool,
    /// Something may be due sooner than was known.
    pub(super) clock: Notify,
    /// Something was due, and it is not known what is due next.
    pub(super) was_due: AtomicBool,
    /// There is something that another process has to do.
    pub(super) others: Notify,
    /// Bounded by the runs in flight: each sends one, and waits for its slot to send another.
    parents: mpsc::UnboundedSender<Parent>,
}

impl Wakeups {
    pub(super) fn new() -> (Self, Parents) {
        let (parents, queue) = mpsc::unbounded_channel();
        let wakeups = Self {
            claimer: Notify::new(),
            expected: AtomicBool::new(false),
            clock: Notify::new(),
            was_due: AtomicBool::new(false),
            others: Notify::new(),
            parents,
        };
        (wakeups, queue)
    }

    /// A child has ended and its end is committed: its parent may be ready.
    pub(super) fn child_ended(&self, parent: Parent) {
        // Without a receiver the engine has stopped, and the sweep of another one finds it.
        let _ = self.parents.send(parent);
    }
}

/// Looks whether parents are ready. Those that come in while the database is asked are gathered
/// for the next question, each once.
pub(super) async fn tell_parents(engine: Arc<Engine>, mut queue: Parents, drained: CancellationToken) {
    let mut batch = vec![];
    loop {
        tokio::select! {
            biased;
            _ = queue.recv_many(&mut batch, BATCH_MAX) => {}
            () = drained.cancelled() => return,
        }
        let mut parents: BTreeMap<Uuid, Parent> = BTreeMap::new();
        for parent in batch.drain(..) {
            let known = parents.entry(parent.id).or_insert_with(|| parent.clone());
            known.at = known.at.max(parent.at);
        }
        let parents: Vec<_> = parents.into_values().collect();
        loop {
            match engine.store.wake(&parents).await {
                Ok(handlers) => break engine.announce(&handlers),
                Err(error) => {
                    warn!(%error, parents = parents.len(), "parents could not be woken; trying again")
                }
            }
            tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
        }
    }
}

/// Notifies the other processes, gathered, and outside of all other transactions.
pub(super) async fn tell_others(engine: Arc<Engine>, drained: CancellationToken) {
    loop {
        tokio::select! {
            () = engine.wakeups.others.notified() => {}
            () = drained.cancelled() => return,
        }
        if let Err(error) = engine.store.notify(engine.worker).await {
            warn!(%error, "other processes could not be notified; they will find out by polling");
        }
        tokio::time::sleep(NOTIFY_PAUSE).await;
    }
}

/// Clients of this process that wait for the end of a hierarchy.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<HashMap<Uuid, Arc<Notify>>>);

/// Rings whenever a run of its root's message ends in this process. When the last of them is gone,
/// nothing is left of it.
pub(crate) struct Bell<'a> {
    waiters: &'a Waiters,
    root: Uuid,
    notify: Arc<Notify>,
}

impl Bell<'_> {
    /// Returns when it rings, at once if it has since the last time.
    pub(crate) async fn rung(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        let mut map = self.waiters.map();
        // One here and one in the map.
        if Arc::strong_count(&self.notify) == 2 {
            map.remove(&self.root);
        }
    }
}

impl Waiters {
    /// A bell for this root.
    pub(crate) fn bell(&self, root: Uuid) -> Bell<'_> {
        let notify = self.map().entry(root).or_default().clone();
        Bell { waiters: self, root, notify }
    }

    pub(super) fn root_ended(&self, root: Uuid) {
        if let Some(notify) = self.map().get(&root) {
            notify.notify_waiters();
            // For somebody who is about to wait.
            notify.notify_one();
        }
    }

    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
