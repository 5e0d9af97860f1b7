//! Suspects: runs whose last attempts have unknown results, so that each may be what ends its workers.
//!
//! A worker executes one suspect at a time, so that the others are not hit again: a suspect that is not the cause
//! records its next event, and is none any more. The timer finds suspects, and the claimer claims them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Engine;
use crate::store::Suspect;
use crate::sync::{Mutex, lock};

#[derive(Default)]
pub(super) struct Suspects {
    in_flight: AtomicBool,
    found: Mutex<Option<Suspect>>,
}

impl Suspects {
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
pub(super) struct SuspectPermit(Arc<Engine>);

impl SuspectPermit {
    /// Taken by the claimer only.
    pub(super) fn take(engine: &Arc<Engine>) -> Self {
        engine.suspects.in_flight.store(true, Ordering::Relaxed);
        Self(engine.clone())
    }
}

impl Drop for SuspectPermit {
    fn drop(&mut self) {
        self.0.suspects.in_flight.store(false, Ordering::Relaxed);
        self.0.set_a_time();
    }
}
