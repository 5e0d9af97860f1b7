//! Shows the other processes that this one lives, and takes over from those that do not.
//!
//! Each process holds an advisory lock in a session of its own, the one that listens. The server
//! frees the lock the moment that session is gone, so death needs no time-out: whoever gets the
//! lock of another worker has found it dead. A process that merely lost the session takes a new
//! lock; what was taken over meanwhile it can no longer settle, as the epochs were raised.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use super::Engine;

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
pub(super) struct Session(PgListener);

impl Session {
    pub(super) async fn open(engine: &Engine) -> sqlx::Result<Self> {
        let mut session = Self::connect(engine.store.sessions().listening()).await?;
        session.prove(engine).await?;
        session.0.listen(engine.store.channel()).await?;
        Ok(session)
    }

    async fn connect(pool: &PgPool) -> sqlx::Result<Self> {
        let mut listener = PgListener::connect_with(pool).await?;
        // The lock has to be taken anew before anything else, so we reconnect ourselves.
        listener.eager_reconnect(false);
        Ok(Self(listener))
    }

    /// Frees the lock: the connection goes back to a pool that outlives us.
    pub(super) async fn close(mut self) {
        if let Err(error) = sqlx::query("SELECT pg_advisory_unlock_all()").execute(&mut self.0).await {
            tracing::debug!(%error, "the session is gone already, and the lock with it");
        }
    }

    /// Takes a lock that nobody ever held, and only then lets the others know of it.
    async fn prove(&mut self, engine: &Engine) -> sqlx::Result<()> {
        sqlx::raw_sql(KEEPALIVES).execute(&mut self.0).await?;
        let lock_key = lock_key();
        sqlx::query("SELECT pg_advisory_lock($1)").bind(lock_key).execute(&mut self.0).await?;
        let (_, handlers) = engine.registry.pairs();
        engine.store.register(&mut self.0, engine.worker, lock_key, handlers).await
    }
}

/// The random half of a fresh UUID: two processes never draw the same.
fn lock_key() -> i64 {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    i64::from_ne_bytes(random.to_ne_bytes())
}

/// Keeps the session, and passes on what the others say, until the engine is drained.
pub(super) async fn keep(engine: Arc<Engine>, mut session: Session, drained: CancellationToken) {
    let own = engine.worker.to_string();
    loop {
        let heard = tokio::select! {
            () = drained.cancelled() => return session.close().await,
            heard = session.0.try_recv() => heard,
        };
        match heard {
            Ok(Some(notification)) if notification.payload() == own => {}
            Ok(Some(_)) => engine.look_up(),
            Ok(None) | Err(_) => {
                warn!("the session that shows that this worker lives was lost");
                drop(session);
                tokio::select! {
                    () = drained.cancelled() => return,
                    renewed = renew(&engine) => session = renewed,
                }
                // What was said meanwhile is lost, and what we held may have been taken over.
                engine.doubt();
            }
        }
    }
}

/// A new session, however long that takes.
async fn renew(engine: &Engine) -> Session {
    loop {
        match Session::open(engine).await {
            Ok(session) => {
                info!("the worker has a new session");
                return session;
            }
            Err(error) => warn!(%error, "the worker cannot get a new session yet"),
        }
        tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
    }
}

/// Frees what dead processes had taken, when there are any. Looks for them at first, and then only
/// if nobody else does so often enough. And now and then it looks for what was lost although nobody
/// died.
pub(super) async fn reap(engine: Arc<Engine>) {
    let others_look = engine.settings.poll_interval <= REAP_INTERVAL;
    let interval = if others_look { SWEEP_INTERVAL } else { REAP_INTERVAL };
    let mut swept = Instant::now();
    loop {
        if swept.elapsed() >= SWEEP_INTERVAL {
            swept = Instant::now();
            engine.doubt();
        }
        match engine.store.reap(engine.worker).await {
            Ok((0, _)) => {}
            Ok((dead, freed)) => {
                info!(dead, freed, "took over from dead workers");
                engine.wakeups.claimer.notify_one();
                engine.wakeups.others.notify_one();
            }
            Err(error) => warn!(%error, "could not look for dead workers"),
        }
        tokio::select! {
            () = engine.stopping.cancelled() => return,
            () = engine.wakeups.reaper.notified() => {}
            () = tokio::time::sleep(interval) => {}
        }
    }
}
