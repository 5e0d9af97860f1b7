//! The signals by which running steps learn that their run was cancelled, or has missed a deadline.

use std::collections::BTreeMap;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::saga::stop_signal::StopSignal;
use crate::store::ClaimKey;
use crate::util::sync::{Mutex, MutexGuard, lock};

/// The running steps that wait for a signal to stop.
#[derive(Default)]
pub(super) struct StopSignals {
    runs: Mutex<BTreeMap<Uuid, (ClaimKey, CancellationToken)>>,
    pub(super) changed: Notify,
}

impl StopSignals {
    pub(super) fn watch(&self, key: ClaimKey) -> StopSignal {
        let mut runs = self.runs();
        let (watched, token) = runs.entry(key.id).or_insert_with(|| (key, CancellationToken::new()));
        *watched = key;
        let signal = StopSignal(token.clone());
        drop(runs);
        self.changed.notify_one();
        signal
    }

    pub(super) fn forget(&self, run: Uuid) {
        self.runs().remove(&run);
    }

    /// A run may have been cancelled.
    pub(super) fn request_check(&self) {
        self.changed.notify_one();
    }

    pub(super) fn keys(&self) -> Vec<ClaimKey> {
        let runs = self.runs();
        runs.values().filter(|(_, token)| !token.is_cancelled()).map(|(key, _)| *key).collect()
    }

    pub(super) fn raise(&self, run: Uuid) {
        if let Some((_, token)) = self.runs().get(&run) {
            token.cancel();
        }
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<Uuid, (ClaimKey, CancellationToken)>> {
        lock(&self.runs)
    }
}

#[cfg(test)]
mod interleavings {
    use shuttle::future::block_on;
    use shuttle::thread;

    use std::sync::Arc;

    use super::*;
    use crate::util::sync::explore;

    /// The watcher waits for a change when it has checked all watched runs.
    #[test]
    fn every_watched_run_is_looked_after() {
        explore(|| {
            let watched = Arc::new(StopSignals::default());
            let runs = [1, 2, 1].map(|id| {
                let watched = watched.clone();
                let key = ClaimKey { root: Uuid::nil(), id: Uuid::from_u128(id), epoch: 1 };
                thread::spawn(move || {
                    let signal = watched.watch(key);
                    block_on(signal.raised());
                    assert!(signal.is_raised() && watched.watch(key).is_raised());
                })
            });
            let scheduler = {
                let watched = watched.clone();
                thread::spawn(move || {
                    let mut raised = 0;
                    while raised < 2 {
                        let keys = watched.keys();
                        raised += keys.len();
                        keys.iter().for_each(|key| watched.raise(key.id));
                        if raised < 2 {
                            block_on(watched.changed.notified());
                        }
                    }
                })
            };
            runs.into_iter().chain([scheduler]).for_each(|task| task.join().unwrap());
            [1, 2].into_iter().for_each(|id| watched.forget(Uuid::from_u128(id)));
            assert!(watched.keys().is_empty() && watched.runs().is_empty());
        });
    }
}
