//! A worker: this program again, configured by environment variables.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use scoop::prelude::*;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::signal::unix::{SignalKind, signal};

use crate::ledger::Outside;
use crate::plan;
use crate::sagas::{Carrier, Clockwork, Gambler, Job, Node, PLANNED_PANIC, Runner, Usher, Visitor, Witness};

/// Set for a worker: its name, which identifies its sessions.
pub(crate) const NAME: &str = "SCOOP_CHAOS_WORKER";
/// The database, through the proxy.
pub(crate) const DATABASE: &str = "SCOOP_CHAOS_DATABASE";
/// The file for effects outside.
pub(crate) const LEDGER: &str = "SCOOP_CHAOS_LEDGER";
/// The seed of all draws.
pub(crate) const SEED: &str = "SCOOP_CHAOS_SEED";

/// More than the engine needs for itself, so that steps compete for the rest.
const CONNECTIONS: u32 = 9;

/// How long a step waits for a connection.
const ACQUIRED_WITHIN: Duration = Duration::from_secs(2);

/// How long all connections of the pool are held on request.
const HELD_FOR: Duration = Duration::from_millis(1_200);

/// The pause of a worker before it repeats a failed attempt, or looks for launches.
const PAUSE: Duration = Duration::from_millis(40);

/// Runs sagas until it is stopped. A start with a transient error is repeated.
pub(crate) async fn work() -> Result<()> {
    let mut stop = signal(SignalKind::terminate())?;
    say_nothing_of_planned_panics();
    let variable = |name| env::var(name).map_err(|_| Error::msg(format!("`{name}` is not set")));
    let seed: u64 = variable(SEED)?.parse()?;
    let options: PgConnectOptions = variable(DATABASE)?.parse()?;
    let options = options.application_name(&variable(NAME)?);
    let outside = Arc::new(Outside::open(&PathBuf::from(variable(LEDGER)?))?);
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(ACQUIRED_WITHIN);
    let pool = pool.connect_lazy_with(options);
    tokio::spawn(hold_when_told(pool.clone()));
    let scoop = tokio::select! {
        started = start(&pool, &outside) => started?,
        _ = stop.recv() => return Ok(()),
    };
    tokio::select! {
        () = launch_what_is_wanted(&scoop, &pool, seed) => {}
        _ = stop.recv() => {}
    }
    scoop.shutdown().await?;
    Ok(())
}

/// Starts the engine. A failed start is repeated, as a supervisor would do.
async fn start(pool: &PgPool, outside: &Arc<Outside>) -> Result<Scoop> {
    loop {
        let outside = || Arc::clone(outside);
        // The crate with the helpers of the tests has a saga of its own.
        let builder = Scoop::builder().postgres(pool.clone()).concurrency(16);
        let builder = builder.only::<Node>().only::<Carrier>().only::<Witness>().only::<Clockwork>();
        let builder = builder.only::<Visitor>().only::<Usher>().only::<Gambler>().only::<Runner>();
        let builder = builder.provide(Node { outside: outside() }).provide(Witness { outside: outside() });
        let builder = builder.provide(Gambler { outside: outside() });
        match builder.start().await {
            Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
            started => return Ok(started?),
        }
    }
}

/// Launches wanted hierarchies. All workers do, because each may be killed before it has.
async fn launch_what_is_wanted(scoop: &Scoop, pool: &PgPool, seed: u64) {
    let next = "SELECT number FROM wanted WHERE NOT launched ORDER BY random() LIMIT 3";
    loop {
        let numbers: Vec<i64> = sqlx::query_scalar(next).fetch_all(pool).await.unwrap_or_default();
        for number in numbers {
            let (plan, _) = plan::of(seed, number);
            if scoop.launch(Job { number, plan }).unique(format!("{number}")).await.is_ok() {
                let done = sqlx::query("UPDATE wanted SET launched = true WHERE number = $1").bind(number);
                // If this fails, the launch is repeated without effect.
                let _ = done.execute(pool).await;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Takes all connections of the pool for a while, on each signal.
async fn hold_when_told(pool: PgPool) -> Result<()> {
    let mut requests = signal(SignalKind::user_defined1())?;
    while requests.recv().await.is_some() {
        let mut held = vec![];
        while let Ok(Ok(connection)) = tokio::time::timeout(PAUSE, pool.acquire()).await {
            held.push(connection);
        }
        tokio::time::sleep(HELD_FOR).await;
    }
    Ok(())
}

fn say_nothing_of_planned_panics() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload_as_str() != Some(PLANNED_PANIC) {
            previous(info);
        }
    }));
}
