//! The timer: wakes the claimer when a run becomes ready by the clock, has waiting runs give up at their deadlines, and
//! signals running steps to stop. The same statement checks for dead workers, so that an idle process sends one
//! statement at a time.
//!
//! Due times are in indexes of the database. This process only knows when to look next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Engine, definitions};
use crate::bug::{Bug, made};
use crate::store::Key;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::telemetry;

/// The number of runs that one statement checks.
const BATCH_MAX: i64 = 1_000;

/// The interval at which watched runs are checked without a signal.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// The pause before another look after something was due. It may still be there, since another transaction has locked
/// it or claims miss it for the moment; so the pause doubles each time, up to the longest.
const PAUSE_WHEN_DUE: Duration = Duration::from_millis(2);
const PAUSE_WHEN_DUE_MAX: Duration = Duration::from_millis(100);

/// Waits for the next due time, again and again.
pub(super) async fn keep(engine: Arc<Engine>, drained: CancellationToken) {
    let mut pause = PAUSE_WHEN_DUE;
    loop {
        let wait = match look(&engine).await {
            Ok(Some(wait)) => {
                pause = PAUSE_WHEN_DUE;
                wait
            }
            Ok(None) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_WHEN_DUE_MAX);
                engine.settings.poll_interval
            }
            Err(error) => {
                telemetry::operation_failed(engine.worker, "timer lookup", &error);
                PAUSE_AFTER_FAILURE
            }
        };
        tokio::select! {
            biased;
            () = drained.cancelled() => return,
            () = engine.wakeups.clock.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Handles what is due. Returns the time until the next one, if it is known yet.
async fn look(engine: &Engine) -> sqlx::Result<Option<Duration>> {
    let poll = engine.settings.poll_interval;
    if made(Bug::NotificationsOnly) {
        return Ok(Some(poll));
    }
    let lanes = engine.definitions.lanes();
    let due = engine.store.due(&lanes, engine.worker, engine.suspects.may_claim()).await?;
    match due.topology {
        Some(topology) if topology != lanes.topology => {
            definitions::look(engine).await?;
            engine.wakeups.claimer.notify_one();
        }
        Some(_) => {}
        None => engine.wakeups.unlisted.notify_one(),
    }
    if due.is_worker_dead {
        engine.wakeups.reaper.notify_one();
    }
    let Some(seconds) = due.seconds else {
        return Ok(Some(poll));
    };
    if seconds > 0.0 {
        return Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(poll).min(poll)));
    }
    let overdue = engine.store.overdue(BATCH_MAX).await?;
    for parent in overdue {
        engine.wakeups.child_ended(parent, None);
    }
    if let Some(suspect) = due.suspect {
        engine.suspects.found(suspect);
    }
    // The claimer signals when it has taken all; only then is the next time known.
    engine.wakeups.was_due.store(true, Ordering::Relaxed);
    engine.wakeups.claimer.notify_one();
    Ok(None)
}

/// The running steps that wait for a signal to stop.
#[derive(Default)]
pub(super) struct Watched {
    runs: Mutex<BTreeMap<Uuid, (Key, CancellationToken)>>,
    changed: Notify,
}

/// Signals that a run should stop: it was cancelled, or a deadline has passed.
///
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct StopSignal(CancellationToken);

impl StopSignal {
    /// Returns when the run should stop; at once if that is so already.
    ///
    /// # Cancel safety
    ///
    /// Waiting changes nothing.
    pub async fn raised(&self) {
        self.0.cancelled().await;
    }

    /// Whether the run should stop.
    pub fn is_raised(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl Watched {
    /// The signal of this run.
    pub(super) fn watch(&self, key: Key) -> StopSignal {
        let mut runs = self.runs();
        let (watched, token) = runs.entry(key.id).or_insert_with(|| (key, CancellationToken::new()));
        *watched = key;
        let signal = StopSignal(token.clone());
        drop(runs);
        self.changed.notify_one();
        signal
    }

    /// Removes a run whose signal was dropped.
    pub(super) fn forget(&self, run: Uuid) {
        self.runs().remove(&run);
    }

    /// A run may have been cancelled.
    pub(super) fn look(&self) {
        self.changed.notify_one();
    }

    fn keys(&self) -> Vec<Key> {
        let runs = self.runs();
        runs.values().filter(|(_, token)| !token.is_cancelled()).map(|(key, _)| *key).collect()
    }

    fn raise(&self, run: Uuid) {
        if let Some((_, token)) = self.runs().get(&run) {
            token.cancel();
        }
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<Uuid, (Key, CancellationToken)>> {
        lock(&self.runs)
    }
}

/// Raises the signals of the runs that should stop.
pub(super) async fn watch(engine: Arc<Engine>, drained: CancellationToken) {
    loop {
        let keys = engine.watched.keys();
        let wait = match look_after(&engine, &keys).await {
            Ok(wait) => wait,
            Err(error) => {
                telemetry::operation_failed(engine.worker, "stop signal lookup", &error);
                PAUSE_AFTER_FAILURE
            }
        };
        tokio::select! {
            biased;
            () = drained.cancelled() => return,
            () = engine.watched.changed.notified() => {}
            () = tokio::time::sleep(wait), if !keys.is_empty() => {}
        }
    }
}

/// Raises signals, and returns the time of the next check.
async fn look_after(engine: &Engine, keys: &[Key]) -> sqlx::Result<Duration> {
    let mut wait = WATCH_INTERVAL;
    if keys.is_empty() {
        return Ok(wait);
    }
    for (run, seconds) in engine.store.stops(keys).await? {
        if seconds <= 0.0 {
            engine.watched.raise(run);
        } else {
            wait = wait.min(Duration::try_from_secs_f64(seconds).unwrap_or(WATCH_INTERVAL));
        }
    }
    Ok(wait)
}

#[cfg(all(test, feature = "shuttle"))]
mod interleavings {
    use shuttle::future::block_on;
    use shuttle::thread;

    use super::*;
    use crate::sync::explore;

    /// The watcher waits for a change when it has checked all watched runs.
    #[test]
    fn every_watched_run_is_looked_after() {
        explore(|| {
            let watched = Arc::new(Watched::default());
            let runs = [1, 2, 1].map(|id| {
                let watched = watched.clone();
                let key = Key { root: Uuid::nil(), id: Uuid::from_u128(id), epoch: 1 };
                thread::spawn(move || {
                    let signal = watched.watch(key);
                    block_on(signal.raised());
                    assert!(signal.is_raised() && watched.watch(key).is_raised());
                })
            });
            let looks = {
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
            runs.into_iter().chain([looks]).for_each(|task| task.join().unwrap());
            [1, 2].into_iter().for_each(|id| watched.forget(Uuid::from_u128(id)));
            assert!(watched.keys().is_empty() && watched.runs().is_empty());
        });
    }
}
