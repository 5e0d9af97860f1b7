//! Suspects: runs whose last attempts have unknown results, so that each may be what ends its workers.
//!
//! A run becomes stuck after more such attempts: see `run_free.sql`. A worker executes one suspect at a time, so that
//! the others are not hit again: a suspect that is not the cause records its next event, and is none any more. The
//! timer finds suspects, and the claimer claims them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::{Suspect, SuspectClaim};
use crate::util::sync::{Mutex, lock};

/// The time after which a suspect in flight holds up no other: it has not ended its worker so far.
const EXCLUSIVE_MAX: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Suspects {
    newest: Arc<Newest>,
    found: Mutex<Option<Suspect>>,
}

/// The suspect in flight that was claimed last.
#[derive(Default)]
struct Newest {
    claimed_at: Mutex<Option<Instant>>,
    ended: Notify,
}

impl Suspects {
    /// The right to execute a suspect. Taken by the claimer only.
    pub(super) fn permit(&self) -> SuspectPermit {
        let claimed_at = Instant::now();
        *lock(&self.newest.claimed_at) = Some(claimed_at);
        SuspectPermit { newest: self.newest.clone(), claimed_at }
    }

    pub(super) fn claim(&self) -> SuspectClaim {
        match *lock(&self.newest.claimed_at) {
            Some(at) if at.elapsed() < EXCLUSIVE_MAX => SuspectClaim::Deferred,
            _ => SuspectClaim::Allowed,
        }
    }

    /// Notes a suspect that is ready.
    pub(super) fn found(&self, suspect: Suspect) {
        *lock(&self.found) = Some(suspect);
    }

    /// The suspect to claim now, if any.
    pub(super) fn take(&self) -> Option<Suspect> {
        let suspect = lock(&self.found).take();
        suspect.filter(|_| self.claim() == SuspectClaim::Allowed)
    }

    /// Returns when the suspect in flight has ended or is cleared, so that the next one may be claimed.
    pub(super) async fn ended(&self) {
        self.newest.ended.notified().await;
    }
}

/// The right to execute a suspect. When dropped, the timer looks for the next one.
pub(super) struct SuspectPermit {
    newest: Arc<Newest>,
    claimed_at: Instant,
}

impl Drop for SuspectPermit {
    fn drop(&mut self) {
        lock(&self.newest.claimed_at).take_if(|at| *at == self.claimed_at);
        self.newest.ended.notify_one();
    }
}
