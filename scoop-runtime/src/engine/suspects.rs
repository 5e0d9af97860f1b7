//! Suspects: runs whose last attempts have unknown results, so that each may be what ends its workers.
//!
//! A worker executes one suspect at a time, so that the others are not hit again: a suspect that is not the cause
//! records its next event, and is none any more. The timer finds suspects, and the claimer claims them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::store::Suspect;
use crate::util::sync::{Mutex, lock};

/// The suspects of this worker.
pub(super) struct Suspects {
    in_flight: Arc<AtomicBool>,
    /// Has the timer look again.
    clock: Arc<Notify>,
    found: Mutex<Option<Suspect>>,
}

impl Suspects {
    /// None yet. The timer waits for `clock`.
    pub(super) fn new(clock: Arc<Notify>) -> Self {
        Self { in_flight: Arc::default(), clock, found: Mutex::default() }
    }

    /// The right to execute one. Taken by the claimer only.
    pub(super) fn permit(&self) -> SuspectPermit {
        self.in_flight.store(true, Ordering::Relaxed);
        SuspectPermit { in_flight: self.in_flight.clone(), clock: self.clock.clone() }
    }

    /// Whether a suspect may be claimed now.
    pub(super) fn may_claim(&self) -> bool {
        !self.in_flight.load(Ordering::Relaxed)
    }

    /// Notes a suspect that is ready.
    pub(super) fn found(&self, suspect: Suspect) {
        *lock(&self.found) = Some(suspect);
    }

    /// The suspect to claim now, if any.
    pub(super) fn take(&self) -> Option<Suspect> {
        let suspect = lock(&self.found).take();
        suspect.filter(|_| self.may_claim())
    }
}

/// The right to execute a suspect. When dropped, the timer looks for the next one.
pub(super) struct SuspectPermit {
    in_flight: Arc<AtomicBool>,
    clock: Arc<Notify>,
}

impl Drop for SuspectPermit {
    fn drop(&mut self) {
        self.in_flight.store(false, Ordering::Relaxed);
        self.clock.notify_one();
    }
}
