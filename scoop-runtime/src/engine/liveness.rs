//! Shows the other processes that this one lives, and takes over from those that do not.
//!
//! Each process holds an advisory lock in a session of its own, the one that listens. The server
//! frees the lock the moment that session is gone, so death needs no time-out: a worker that gets the
//! lock of another has found it dead. Any role that may connect can queue for that lock and keep the worker from getting
//! it, so a worker is also dead if the backend of its session is gone (`scoop.is_gone`). A process that merely lost the
//! session takes a new lock; what was taken over meanwhile it can no longer settle, as the epochs were raised.
//!
//! Of a database in memory a session is a value that somebody has.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Engine;
use crate::ids;
use crate::store::{MemorySession, Reaped, Store, Tables};
use crate::telemetry;

/// How often to look for dead processes at least. Whoever keeps the time looks, too.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// How often to look for what may have been lost in spite of all care.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Has the server ask a silent client whether it is still there: a host that vanished without a
/// word is noticed after about ten seconds. Without effect on a unix socket, where the kernel
/// tells at once.
const KEEPALIVES: &str =
    "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3";

/// The session that proves that this process lives, and hears the others.
pub(super) enum Session {
    Postgres(PgListener),
    Memory(MemorySession),
}

/// Who said something.
enum Heard {
    Ourselves,
    Others,
    /// Nobody: the session is gone.
    End,
    /// Nobody: the session lives, but the worker is not registered any more, so that it claims nothing.
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

    /// Waits until somebody says something.
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

    /// Frees the lock: the connection goes back to a pool that outlives us.
    pub(super) async fn close(self) {
        if let Self::Postgres(mut listener) = self
            && let Err(error) = sqlx::query("SELECT pg_advisory_unlock_all()").execute(&mut listener).await
        {
            telemetry::session_gone(&error);
        }
    }
}

/// Opens a session that listens. It takes a lock that nobody ever held, and only then lets the others
/// know of it.
async fn listen(engine: &Engine, tables: &Tables) -> sqlx::Result<PgListener> {
    let mut listener = PgListener::connect_with(tables.sessions().listening()).await?;
    // The lock has to be taken anew before anything else, so we reconnect ourselves.
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

/// Keeps the session, and passes on what the others say, until the engine is drained.
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
                // What was said meanwhile is lost, and what we held may have been taken over.
                engine.doubt();
                engine.look_up();
            }
        }
    }
}

/// Whether this worker is registered, as far as can be told: it may have been renewed meanwhile.
async fn is_listed(engine: &Engine) -> bool {
    let living = engine.store.living_workers().await;
    living.map_or(true, |living| living.iter().any(|living| living.id == engine.worker))
}

/// A new session, however long that takes.
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

/// Frees what dead processes had taken, when there are any. Looks for them at first, and then only
/// if nobody else does so often enough. And now and then it looks for what was lost although nobody
/// died.
pub(super) async fn reap(engine: Arc<Engine>) {
    let poll = engine.settings.poll_interval;
    let (interval, sweep) = match engine.store.tells_of_deaths() {
        // Nobody has to look, and where time is virtual each look costs as much as any other.
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
