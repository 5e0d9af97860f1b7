//! Shows other processes that this one lives, and takes over the runs of dead ones.
//!
//! Each process holds an advisory lock in a session of its own, which also listens. The server frees the lock as soon
//! as that session is gone, so no time-out is needed: a worker that gets the lock of another one has found it dead. Any
//! role that may connect can queue for that lock and keep workers from getting it, so a worker is also dead if the
//! backend of its session is gone (`scoop.is_gone`). A process that lost only the session takes a new lock; it cannot
//! settle runs that were taken over meanwhile, since their epochs were raised.
//!
//! For a database in memory, a session is a value that lives as long as its owner.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::shared::Engine;
use crate::ids;
use crate::store::{MemorySession, Reaped, Store, Tables};
use crate::telemetry;

/// The longest interval between checks for dead workers. The timer checks as well.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// The interval of reconciliations without a known reason.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Makes the server check a silent client: the loss of a host is noticed after about eleven seconds, also if a
/// notification to it is not acknowledged, since keepalives are not sent then. No effect on a Unix socket, where the
/// kernel reports the end of a process at once.
const KEEPALIVES: &str = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; \
    SET tcp_user_timeout = '11s'";

/// The session that shows that this process lives, and receives notifications.
pub(super) enum Session {
    Postgres(PgListener),
    Memory(MemorySession),
}

/// The sender of a notification.
enum Heard {
    Ourselves,
    Others,
    /// None: the session is gone.
    End,
    /// None: the session lives, but the worker is not registered any more, so that it claims nothing.
    Unlisted,
}

impl Session {
    pub(super) async fn open(engine: &Engine) -> sqlx::Result<Self> {
        match &engine.store {
            Store::Postgres(tables) => Ok(Self::Postgres(listen(engine, tables).await?)),
            Store::Memory(memory) => {
                let known = engine.definitions.known();
                let registered = engine.definitions.registered(&known, engine.worker);
                let (session, started_at) = memory.open_session(registered).await?;
                engine.definitions.started(started_at);
                Ok(Self::Memory(session))
            }
        }
    }

    /// Waits for a notification.
    async fn hear(&mut self, engine: &Engine) -> Heard {
        let by_us = match self {
            Self::Postgres(listener) => match listener.try_recv().await {
                Ok(Some(notification)) => Some(notification.payload() == engine.worker.to_string()),
                Ok(None) | Err(_) => None,
            },
            Self::Memory(session) => session.hear().await.map(|from| from == engine.worker),
        };
        match by_us {
            Some(true) => Heard::Ourselves,
            Some(false) => Heard::Others,
            None => Heard::End,
        }
    }

    /// Frees the lock: the connection goes back to a pool that outlives the engine.
    pub(super) async fn close(self) {
        if let Self::Postgres(mut listener) = self
            && let Err(error) = sqlx::query("SELECT pg_advisory_unlock_all()").execute(&mut listener).await
        {
            telemetry::session_gone(&error);
        }
    }
}

/// Opens a session that listens. It takes a lock with a fresh key, and registers the worker only then.
async fn listen(engine: &Engine, tables: &Tables) -> sqlx::Result<PgListener> {
    let mut listener = PgListener::connect_with(tables.sessions().listening()).await?;
    // The lock has to be taken before anything else, so the reconnect is done here.
    listener.eager_reconnect(false);
    sqlx::raw_sql(KEEPALIVES).execute(&mut listener).await?;
    let lock_key = lock_key();
    sqlx::query("SELECT pg_advisory_lock($1)").bind(lock_key).execute(&mut listener).await?;
    let known = engine.definitions.known();
    let registered = engine.definitions.registered(&known, engine.worker);
    let started_at = tables.register(&mut listener, lock_key, registered).await?;
    engine.definitions.started(started_at);
    listener.listen(tables.channel()).await?;
    Ok(listener)
}

/// The random half of a fresh UUID: two processes never draw the same.
fn lock_key() -> i64 {
    let (_, random) = ids::now_v7().as_u64_pair();
    i64::from_ne_bytes(random.to_ne_bytes())
}

/// Keeps the session, and passes on notifications, until the engine is drained.
pub(super) async fn keep(engine: Arc<Engine>, mut session: Session, drained: CancellationToken) {
    loop {
        let heard = tokio::select! {
            biased;
            () = drained.cancelled() => return session.close().await,
            heard = session.hear(&engine) => heard,
            () = engine.wakeups.unlisted.notified() => match is_listed(&engine).await {
                true => continue,
                false => Heard::Unlisted,
            },
        };
        match heard {
            Heard::Ourselves => {}
            Heard::Others => engine.look_up(),
            Heard::End | Heard::Unlisted => {
                if matches!(heard, Heard::Unlisted) {
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
                    renewed = renew(&engine) => session = renewed,
                }
                // Notifications may be lost, and runs of this worker may have been taken over.
                engine.doubt();
                engine.look_up();
            }
        }
    }
}

/// Whether this worker is registered. True if that is unknown.
async fn is_listed(engine: &Engine) -> bool {
    let living = engine.store.living_workers().await;
    living.map_or(true, |living| living.iter().any(|living| living.id == engine.worker))
}

/// Opens a new session, however long that takes.
async fn renew(engine: &Engine) -> Session {
    loop {
        match Session::open(engine).await {
            Ok(session) => {
                telemetry::session_renewed(engine.worker);
                return session;
            }
            Err(error) => telemetry::operation_failed(engine.worker, "session renewal", &error),
        }
        tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
    }
}

/// Frees the runs of dead workers. Checks for dead workers at the start, and then at intervals unless the timer does so
/// often enough. At longer intervals it reconciles without a known reason.
pub(super) async fn reap(engine: Arc<Engine>) {
    let poll = engine.settings.poll_interval;
    let (interval, sweep) = match engine.store.tells_of_deaths() {
        // The store reports deaths, and where time is virtual each check costs as much as any other.
        true => (SWEEP_INTERVAL.max(poll), SWEEP_INTERVAL.max(poll)),
        false if poll <= REAP_INTERVAL => (SWEEP_INTERVAL, SWEEP_INTERVAL),
        false => (REAP_INTERVAL, SWEEP_INTERVAL),
    };
    let mut swept = Instant::now();
    loop {
        if swept.elapsed() >= sweep {
            swept = Instant::now();
            engine.sweep();
        }
        match engine.store.reap(engine.worker, engine.settings.backoff).await {
            Ok(Reaped { workers: 0, .. }) => {}
            Ok(Reaped { workers, freed }) => {
                telemetry::took_over(engine.worker, workers, freed.runs);
                telemetry::unknown_too_often(&freed.stuck);
                engine.wakeups.claimer.notify_one();
                // Some of the runs may have to wait.
                engine.set_a_time();
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
