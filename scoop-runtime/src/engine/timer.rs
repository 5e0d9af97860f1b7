//! The timer: wakes the claimer when a run becomes ready by the clock, has waiting runs give up at their deadlines, and
//! signals running steps to stop, and ends pauses whose time is over. The same statement checks for dead workers, so that
//! an idle process sends one statement at a time.
//!
//! Due times are in indexes of the database. This process only knows when to look next.
//!
//! A sleep is a state of its run, and no message: the run is ready from that time on, or from its deadline on. A run with
//! children waits for these first, and keeps its time meanwhile (`scoop.wakes_at`). All instants are of the server's clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::deadlines;
use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use super::topology::refresh;
use crate::store::ClaimKey;
use crate::telemetry;
use crate::util::sync::lock;

/// The interval at which watched runs are checked without a signal.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The pause before another scan after something was due. It may still be there, since another transaction has locked
/// it or claims miss it for the moment; so the pause doubles each time, up to the longest.
const PAUSE_WHEN_DUE: Duration = Duration::from_millis(2);
const PAUSE_WHEN_DUE_MAX: Duration = Duration::from_millis(100);

pub(super) async fn serve_timer(engine: Arc<Engine>, drained: CancellationToken) {
    let mut pause = PAUSE_WHEN_DUE;
    loop {
        let wait = match handle_due(&engine).await {
            Ok(Some(wait)) => {
                pause = PAUSE_WHEN_DUE;
                wait
            }
            Ok(None) => {
                let paused = tokio::time::timeout(pause, engine.suspects.ended()).await.is_err();
                pause = if paused { (pause * 2).min(PAUSE_WHEN_DUE_MAX) } else { PAUSE_WHEN_DUE };
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
            () = engine.suspects.ended() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Handles what is due. Returns the time until the next one, if it is known yet.
async fn handle_due(engine: &Engine) -> sqlx::Result<Option<Duration>> {
    let poll = engine.settings.poll_interval;
    let queues = engine.topology.queues();
    // The claimer looks before these, too, at intervals.
    let cursors = lock(&engine.queue_cursors).clone();
    let due = engine.store.next_due(&queues, engine.worker, engine.suspects.claim(), &cursors).await?;
    engine.note_due(due.seconds);
    if due.is_pause_over {
        end_pauses(engine).await?;
    }
    match due.topology {
        Some(topology)
            if due.is_pause_over
                || topology != queues.topology
                || engine.topology.owes_acknowledgement.load(Ordering::Relaxed) =>
        {
            refresh::poll(engine).await?;
            engine.wakeups.wake_claimers();
            // The queues may be others, and something of them may be due.
            engine.wakeups.clock.notify_one();
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
    deadlines::expire_waiting(engine).await?;
    if let Some(suspect) = due.suspect {
        engine.suspects.found(suspect);
    }
    // The claimer signals when it has taken all; only then is the next time known.
    engine.wakeups.rescan_after_claim.store(true, Ordering::Relaxed);
    engine.wakeups.wake_claimers();
    Ok(None)
}

async fn end_pauses(engine: &Engine) -> sqlx::Result<()> {
    for pause in engine.store.tables()?.end_expired_pauses().await? {
        telemetry::pause_ended(&pause, "its time is over");
    }
    Ok(())
}

pub(super) async fn serve_stop_signals(engine: Arc<Engine>, drained: CancellationToken) {
    loop {
        let keys = engine.stop_signals.keys();
        let wait = match refresh_stop_signals(&engine, &keys).await {
            Ok(wait) => wait,
            Err(error) => {
                telemetry::operation_failed(engine.worker, "stop signal lookup", &error);
                PAUSE_AFTER_FAILURE
            }
        };
        tokio::select! {
            biased;
            () = drained.cancelled() => return,
            () = engine.stop_signals.changed.notified() => {}
            () = tokio::time::sleep(wait), if !keys.is_empty() => {}
        }
    }
}

/// Raises signals, and returns the time of the next check.
async fn refresh_stop_signals(engine: &Engine, keys: &[ClaimKey]) -> sqlx::Result<Duration> {
    let mut wait = WATCH_INTERVAL;
    if keys.is_empty() {
        return Ok(wait);
    }
    for (run, seconds) in engine.store.stop_deadlines(keys).await? {
        if seconds <= 0.0 {
            engine.stop_signals.raise(run);
        } else {
            wait = wait.min(Duration::try_from_secs_f64(seconds).unwrap_or(WATCH_INTERVAL));
        }
    }
    Ok(wait)
}
