//! Keeps the time: rings the claimer when a run becomes ready by the clock, has those give up that
//! wait beyond a deadline, and tells running steps when they should stop. It asks for the dead along
//! with that, so that an idle process asks one question at a time.
//!
//! What is due stands in the database, in indexes. This process knows only when to look next.

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

/// How many runs are looked at in one statement.
const BATCH_MAX: i64 = 1_000;

/// How often to look whether a watched run has to give up, if nobody says so.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// How soon to look again after something was due. It may still be there, if somebody else has it
/// locked, or claims overlook it for the moment; so the pause is doubled each time, up to the longest.
const PAUSE_WHEN_DUE: Duration = Duration::from_millis(2);
const PAUSE_WHEN_DUE_MAX: Duration = Duration::from_millis(100);

/// Waits for the next thing that is due, again and again.
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

/// Sees to what is due. Says how long nothing else will be, if it can be told yet.
async fn look(engine: &Engine) -> sqlx::Result<Option<Duration>> {
    let poll = engine.settings.poll_interval;
    if made(Bug::NotificationsOnly) {
        return Ok(Some(poll));
    }
    let lanes = engine.definitions.lanes();
    let (due, somebody_is_dead, topology) = engine.store.due(&lanes, engine.worker).await?;
    match topology {
        Some(topology) if topology != lanes.topology => {
            definitions::look(engine).await?;
            engine.wakeups.claimer.notify_one();
        }
        Some(_) => {}
        None => engine.wakeups.unlisted.notify_one(),
    }
    if somebody_is_dead {
        engine.wakeups.reaper.notify_one();
    }
    let Some(seconds) = due else {
        return Ok(Some(poll));
    };
    if seconds > 0.0 {
        return Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(poll).min(poll)));
    }
    let overdue = engine.store.overdue(BATCH_MAX).await?;
    for parent in overdue {
        engine.wakeups.child_ended(parent, None);
    }
    // It says when it has taken all there is; only then can the next time be told.
    engine.wakeups.was_due.store(true, Ordering::Relaxed);
    engine.wakeups.claimer.notify_one();
    Ok(None)
}

/// The running steps that want to know when they should stop.
#[derive(Default)]
pub(super) struct Watched {
    runs: Mutex<BTreeMap<Uuid, (Key, CancellationToken)>>,
    changed: Notify,
}

/// Says when a run should stop: when somebody asked for it, or a deadline has passed.
///
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct StopSignal(CancellationToken);

impl StopSignal {
    /// Returns when the run should stop, at once if that is so already.
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
    /// A signal for this run.
    pub(super) fn watch(&self, key: Key) -> StopSignal {
        let mut runs = self.runs();
        let (watched, token) = runs.entry(key.id).or_insert_with(|| (key, CancellationToken::new()));
        *watched = key;
        let signal = StopSignal(token.clone());
        drop(runs);
        self.changed.notify_one();
        signal
    }

    /// Nobody wants to know any more.
    pub(super) fn forget(&self, run: Uuid) {
        self.runs().remove(&run);
    }

    /// Somebody may have asked a run to give up.
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

/// Raises signals, and says when to look again.
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

    /// Whoever looks after the watched runs waits for a change when there are none that it has not seen to.
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
