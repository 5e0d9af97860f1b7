//! Shows other processes that this one lives, and takes over the runs of dead ones.
//!
//! Each process holds an advisory lock in a session of its own, which also listens. The server frees the lock as soon
//! as that session is gone, so no time-out is needed: a worker that gets the lock of another one has found it dead. Any
//! role that may connect can queue for that lock and keep workers from getting it, so a worker is also dead if the
//! backend of its session is gone (`scoop.is_gone`). A process that lost only the session takes a new lock; it cannot
//! settle runs that were taken over meanwhile, since their epochs were raised.
//!
//! For a database in memory, a session is a value that lives as long as its owner.
//!
//! A worker may die while the server executes its claim, which then commits after its runs were freed. So a claim locks the
//! row of its worker (`FOR KEY SHARE`), and the reaper deletes that row, which waits for the claim. A later statement, with
//! a later snapshot, frees the runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::registration;
use super::shared::{Engine, PAUSE_AFTER_FAILURE};
use super::wakeups::Delivery;
#[cfg(feature = "in-memory")]
use crate::store::MemorySession;
use crate::store::{PostgresSession, Reaped, SIGNAL_SENT, Store};
use crate::telemetry;

/// The longest interval between checks for dead workers. The timer checks as well.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// The interval of reconciliations without a known reason, and of looks at the registration of the program.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The shortest interval between two registrations of a worker whose row was deleted: two workers that take each other
/// for dead must not do so without a pause.
const REGISTER_INTERVAL: Duration = Duration::from_secs(1);

/// The session that shows that this process lives, and receives notifications.
pub(super) enum WorkerSession {
    Postgres(PostgresSession),
    #[cfg(feature = "in-memory")]
    Memory(MemorySession),
}

enum Notification {
    Ourselves,
    Others,
    /// A client that may not deliver has sent a signal.
    SignalSent,
    /// None: the session is gone.
    End,
    /// None: the session lives, but the worker is not registered any more, so that it claims nothing.
    Unlisted,
}

impl WorkerSession {
    pub(super) async fn open(engine: &Engine) -> sqlx::Result<Self> {
        match &engine.store {
            Store::Postgres(tables) => {
                let mut session = tables.open_session().await?;
                // Read when the lock is taken.
                let known = engine.topology.known();
                let registered = engine.topology.registered(&known, engine.worker, &engine.settings.program);
                let (started_at, retired) = session.register(tables, registered).await?;
                telemetry::handlers_retired(engine.worker, &retired);
                engine.topology.started(started_at);
                session.listen(tables).await?;
                Ok(Self::Postgres(session))
            }
            #[cfg(feature = "in-memory")]
            Store::Memory(memory) => {
                let known = engine.topology.known();
                let registered = engine.topology.registered(&known, engine.worker, &engine.settings.program);
                let (session, started_at, retired) = memory.open_session(registered).await?;
                telemetry::handlers_retired(engine.worker, &retired);
                engine.topology.started(started_at);
                Ok(Self::Memory(session))
            }
        }
    }

    async fn next_notification(&mut self, engine: &Engine) -> Notification {
        let sender = match self {
            Self::Postgres(session) => session.hear().await,
            #[cfg(feature = "in-memory")]
            Self::Memory(session) => session.hear().await,
        };
        match sender {
            Some(sender) if sender == engine.worker => Notification::Ourselves,
            Some(SIGNAL_SENT) => Notification::SignalSent,
            Some(_) => Notification::Others,
            None => Notification::End,
        }
    }

    /// Frees the lock: the connection goes back to a pool that outlives the engine.
    pub(super) async fn close(self) {
        match self {
            Self::Postgres(session) => session.close().await,
            #[cfg(feature = "in-memory")]
            Self::Memory(_) => {}
        }
    }
}

/// Keeps the session, and passes on notifications, until the engine is drained.
pub(super) async fn serve_session(
    engine: Arc<Engine>,
    mut session: WorkerSession,
    drained: CancellationToken,
) {
    let mut registered_at = Instant::now();
    loop {
        let heard = tokio::select! {
            biased;
            () = drained.cancelled() => return session.close().await,
            heard = session.next_notification(&engine) => heard,
            () = engine.wakeups.unlisted.notified() => match is_registered(&engine).await {
                true => continue,
                false => Notification::Unlisted,
            },
        };
        match heard {
            Notification::Ourselves => {}
            Notification::Others => engine.wake_tasks(),
            Notification::SignalSent => engine.wakeups.deliver(Delivery::Recent),
            Notification::End | Notification::Unlisted => {
                engine.note_session(false);
                let mut from = Instant::now();
                if matches!(heard, Notification::Unlisted) {
                    from = registered_at + REGISTER_INTERVAL;
                    telemetry::worker_unlisted(engine.worker);
                    // Another row may have its lock.
                    session.close().await;
                } else {
                    telemetry::session_lost(engine.worker);
                    drop(session);
                }
                tokio::select! {
                    biased;
                    () = drained.cancelled() => return,
                    renewed = reopen(&engine, from) => session = renewed,
                }
                registered_at = Instant::now();
                // Notifications may be lost, and runs of this worker may have been taken over.
                engine.mark_in_doubt();
                engine.wake_tasks();
            }
        }
    }
}

/// Whether this worker is registered. True if that is unknown.
async fn is_registered(engine: &Engine) -> bool {
    let topology = engine.store.read_topology(&[]).await;
    topology.map_or(true, |topology| topology.living.iter().any(|living| living.id == engine.worker))
}

/// Opens a new session from this time on, however long that takes. The tables may have been emptied, so what else is lost of
/// the program is recorded before, as at its start.
async fn reopen(engine: &Engine, from: Instant) -> WorkerSession {
    tokio::time::sleep_until(from).await;
    let renew = async || {
        registration::restore(engine).await?;
        WorkerSession::open(engine).await
    };
    loop {
        match renew().await {
            Ok(session) => {
                engine.note_session(true);
                telemetry::session_renewed(engine.worker);
                return session;
            }
            Err(error) => telemetry::operation_failed(engine.worker, "session renewal", &error),
        }
        tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
    }
}

/// Frees the runs of dead workers. Checks for dead workers at the start, and then at intervals unless the timer does so
/// often enough. At longer intervals it reconciles without a known reason, and records again what is lost of this program.
pub(super) async fn reap(engine: Arc<Engine>) {
    let poll = engine.settings.poll_interval;
    let (interval, sweep) = match engine.store.detects_deaths() {
        // The store reports deaths, and where time is virtual each check costs as much as any other.
        true => (SWEEP_INTERVAL.max(poll), SWEEP_INTERVAL.max(poll)),
        false if poll <= REAP_INTERVAL => (SWEEP_INTERVAL, SWEEP_INTERVAL),
        false => (REAP_INTERVAL, SWEEP_INTERVAL),
    };
    let mut swept = Instant::now();
    loop {
        if swept.elapsed() >= sweep {
            swept = Instant::now();
            engine.request_reconcile();
            if let Err(error) = registration::restore(&engine).await {
                telemetry::operation_failed(engine.worker, "look at the registration", &error);
            }
        }
        match engine.store.reap(engine.worker, engine.settings.backoff).await {
            Ok(Reaped { workers: 0, .. }) => {}
            Ok(Reaped { workers, freed }) => {
                telemetry::runs_taken_over(engine.worker, workers, freed.runs);
                telemetry::unknown_too_often(&freed.stuck);
                telemetry::handlers_retired(engine.worker, &freed.retired);
                engine.wakeups.wake_claimers();
                // A run of it may have begun to await a signal.
                engine.wakeups.deliver(Delivery::All);
                // Some of the runs may have to wait.
                engine.reschedule_timer();
                // Nothing is claimed before this worker knows that the dead one is gone.
                engine.wakeups.clock.notify_one();
                engine.wakeups.others.notify_one();
            }
            Err(error) => telemetry::operation_failed(engine.worker, "reap of dead workers", &error),
        }
        tokio::select! {
            biased;
            () = engine.stopping.cancelled() => return,
            () = engine.wakeups.reaper.notified() => {}
            () = tokio::time::sleep(interval) => {}
        }
    }
}
