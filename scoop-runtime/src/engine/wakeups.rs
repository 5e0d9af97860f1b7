//! What the tasks of the engine wake each other with.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};

use scoop_core::SignalKey;

use super::slots::FreedByHandler;
use crate::store::ParentRef;
use crate::util::sync::{Mutex, lock};

pub(super) type ParentChecks = mpsc::UnboundedReceiver<ParentCheck>;

/// A parent whose child has ended, and the slot of that child if it is left to the parent.
pub(super) type ParentCheck = (ParentRef, Option<OwnedSemaphorePermit>);

pub(super) type Deliveries = mpsc::UnboundedReceiver<Delivery>;

pub(super) enum Delivery {
    /// That of this name and key.
    To(SignalKey),
    /// Those sent since the last sweep, which a process that died since then may have left.
    Recent,
    /// All that a run awaits.
    All,
    /// None: there may be more whose time is over.
    Expired,
}

/// What the tasks of the engine wake each other with.
pub(super) struct Wakeups {
    pub(super) claimer: Notify,
    /// There may be runs to claim of sagas with limits.
    pub(super) limited: Arc<Notify>,
    /// The places that runs of such sagas have left.
    pub(super) freed: FreedByHandler,
    /// The handlers with limits for which this process has made runs ready since the last claim under limits.
    ready: Mutex<BTreeSet<String>>,
    /// Whether a saga of this program has a limit.
    pub(super) has_limits: AtomicBool,
    /// Reconciliation is due, regardless of free slots.
    pub(super) in_doubt: Notify,
    /// A foreign transaction may soon commit new runs without a notification: poll.
    pub(super) expected: AtomicBool,
    /// Something may be due sooner than known.
    pub(super) clock: Notify,
    /// Something was due, and the next time is unknown.
    pub(super) rescan_after_claim: AtomicBool,
    /// Another process is dead.
    pub(super) reaper: Notify,
    /// This worker is not registered any more.
    pub(super) unlisted: Notify,
    /// Another process has something to do.
    pub(super) others: Notify,
    /// The time of a set of joined messages may be over sooner than known.
    pub(super) joins: Notify,
    /// A pause has begun or ended: the due schedules are others.
    pub(super) schedules: Notify,
    /// Parents to check. Unbounded, but each run in flight contributes at most one, and each cancellation or check of
    /// deadlines one batch.
    parents: mpsc::UnboundedSender<ParentCheck>,
    /// Signals from outside to deliver. Unbounded, but each settlement contributes at most one.
    deliveries: mpsc::UnboundedSender<Delivery>,
}

impl Wakeups {
    pub(super) fn new() -> (Self, ParentChecks, Deliveries) {
        let (parents, queue) = mpsc::unbounded_channel();
        let (deliveries, to_deliver) = mpsc::unbounded_channel();
        let wakeups = Self {
            claimer: Notify::new(),
            limited: Arc::default(),
            freed: FreedByHandler::default(),
            ready: Mutex::default(),
            has_limits: AtomicBool::new(false),
            in_doubt: Notify::new(),
            expected: AtomicBool::new(false),
            clock: Notify::new(),
            rescan_after_claim: AtomicBool::new(false),
            reaper: Notify::new(),
            unlisted: Notify::new(),
            others: Notify::new(),
            joins: Notify::new(),
            schedules: Notify::new(),
            parents,
            deliveries,
        };
        (wakeups, queue, to_deliver)
    }

    pub(super) fn wake_claimers(&self) {
        self.claimer.notify_one();
        self.wake_limited();
    }

    /// Wakes the task that claims runs of sagas with limits, if there are such sagas.
    pub(super) fn wake_limited(&self) {
        if self.has_limits.load(Ordering::Relaxed) {
            self.limited.notify_one();
        }
    }

    /// Records that this process has made a run of a handler with a limit ready.
    pub(super) fn add_ready(&self, handler: &str) {
        let mut ready = lock(&self.ready);
        if !ready.contains(handler) {
            ready.insert(handler.to_owned());
        }
    }

    pub(super) fn take_ready(&self) -> BTreeSet<String> {
        std::mem::take(&mut lock(&self.ready))
    }

    /// Delivers signals to the runs that await them.
    pub(super) fn deliver(&self, delivery: Delivery) {
        // Without a receiver the engine has stopped, and the sweep of another worker delivers them.
        let _ = self.deliveries.send(delivery);
    }

    /// Checks the parent of a child whose end is committed: it may be ready, and continue in the slot of the child.
    pub(super) fn child_ended(&self, parent: ParentRef, slot: Option<OwnedSemaphorePermit>) {
        // Without a receiver the engine has stopped, and the sweep of another worker finds the parent.
        let _ = self.parents.send((parent, slot));
    }
}
