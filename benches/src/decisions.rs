//! B19: the rate at which commands decide, beside two other ways to decide without a race, as steps of plain sagas.
//!
//! Callers send one command after another, each when the last one is decided. Each way does the same work: it reads the
//! state of an entity, decides, writes the state and launches an event that has no handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use scoop::Scoop;
use scoop::prelude::*;
use sqlx::PgConnection;

use crate::baseline::WARM_UP;
use crate::bench::{Bench, Pace};
use crate::outcome::Outcome as Answer;
use crate::sagas::Meter;
use crate::stats::percentile_ms;

/// The number of entities, if there are many.
const ENTITIES: i64 = 10_000;

/// The callers at many entities.
const SPREAD_CALLERS: usize = 200;

/// The entity of commands.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Stock {
    units: i64,
}

#[entity(name = "bench_stock", key = i64)]
impl Stock {
    fn taken(&mut self, event: &Taken) {
        self.units -= event.units;
    }
}

/// The event of a decision. No saga handles it.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.taken")]
pub(crate) struct Taken {
    product: i64,
    units: i64,
}

/// Takes units by a command.
#[derive(Serialize, Deserialize)]
pub(crate) struct Take {
    product: i64,
    units: i64,
}

#[command(entity = Stock)]
impl Take {
    fn key(&self) -> i64 {
        self.product
    }

    fn decide(&self, stock: &Stock) -> Decision<Taken, ()> {
        match self.units <= stock.units {
            true => Decision::Accepted(Taken { product: self.product, units: self.units }),
            false => Decision::Rejected(()),
        }
    }
}

/// The row has another version by now.
#[derive(Debug)]
struct Conflict;

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("another step has changed the stock")
    }
}

impl std::error::Error for Conflict {}

/// The message of [`Optimistic`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.take.optimistic")]
pub(crate) struct TakeIfSame {
    product: i64,
    units: i64,
}

/// Takes units if the version of the row is still the one that it has read, and retries otherwise.
pub(crate) struct Optimistic(Arc<Conflicts>);

/// The number of attempts that found another version.
#[derive(Default)]
pub(crate) struct Conflicts(AtomicU64);

#[saga]
#[subscribes(TakeIfSame)]
impl Optimistic {
    #[step(retry(max = 1_000_000, backoff = "1ms..20ms"))]
    async fn take(&self, scope: &mut Scope<'_>, take: &TakeIfSame) -> Result<()> {
        let (product, units) = (take.product, take.units);
        let read = sqlx::query_as("SELECT version, units FROM public.stock WHERE product = $1").bind(product);
        let (version, left): (i64, i64) = read.fetch_one(scope.tx().await?).await?;
        if units > left {
            return Ok(());
        }
        let write = "UPDATE public.stock SET version = version + 1, units = units - $3 WHERE product = $1 AND version = $2";
        let write = sqlx::query(write).bind(product).bind(version).bind(units);
        if write.execute(scope.tx().await?).await?.rows_affected() == 0 {
            self.0.0.fetch_add(1, Ordering::Relaxed);
            return Err(Conflict.into());
        }
        scope.launch(Taken { product, units }).await?;
        Ok(())
    }
}

/// The message of [`Pessimistic`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.take.pessimistic")]
pub(crate) struct TakeLocked {
    product: i64,
    units: i64,
}

/// Takes units while the row is locked.
#[derive(Default)]
pub(crate) struct Pessimistic;

#[saga]
#[subscribes(TakeLocked)]
impl Pessimistic {
    #[step]
    async fn take(&self, scope: &mut Scope<'_>, take: &TakeLocked) -> Result<()> {
        let (product, units) = (take.product, take.units);
        let read = sqlx::query_scalar("SELECT units FROM public.stock WHERE product = $1 FOR UPDATE");
        let left: i64 = read.bind(product).fetch_one(scope.tx().await?).await?;
        if units > left {
            return Ok(());
        }
        let write = "UPDATE public.stock SET version = version + 1, units = units - $2 WHERE product = $1";
        sqlx::query(write).bind(product).bind(units).execute(scope.tx().await?).await?;
        scope.launch(Taken { product, units }).await?;
        Ok(())
    }
}

/// A way to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Command,
    Optimistic,
    Pessimistic,
}

impl Way {
    const ALL: [Self; 3] = [Self::Command, Self::Optimistic, Self::Pessimistic];

    /// Sends one, and waits until it is decided.
    async fn decide(self, scoop: &Scoop, product: i64) -> Answer<()> {
        let units = 1;
        let outcome = match self {
            Self::Command => scoop.send(Take { product, units }).await?.wait().await?,
            Self::Optimistic => scoop.launch(TakeIfSame { product, units }).await?.wait().await?,
            Self::Pessimistic => scoop.launch(TakeLocked { product, units }).await?.wait().await?,
        };
        match outcome {
            Outcome::Committed => Ok(()),
            other => Err(format!("{self:?}: {other}").into()),
        }
    }
}

/// So many callers, and entities.
struct Load {
    key: &'static str,
    callers: usize,
    entities: i64,
}

/// What a round has found out.
struct Round {
    pace: Pace,
    p99: f64,
    /// Attempts that found another version, for each decision.
    conflicts: f64,
}

pub(crate) async fn measure(bench: &mut Bench) -> Answer<()> {
    let loads = [
        Load { key: "B19 hot 16", callers: 16, entities: 1 },
        Load { key: "B19 hot 200", callers: 200, entities: 1 },
        Load { key: "B19 hot 1000", callers: 1_000, entities: 1 },
        Load { key: "B19 spread", callers: SPREAD_CALLERS, entities: ENTITIES },
    ];
    for round in 0..bench.settings.rounds {
        for load in &loads {
            let mut rounds = Vec::with_capacity(Way::ALL.len());
            // In turns, so that none is always measured after the same other.
            for nth in 0..Way::ALL.len() {
                let way = Way::ALL[(round + nth) % Way::ALL.len()];
                rounds.push((way, decide(bench, load, way).await?));
            }
            report(bench, load, &rounds);
        }
    }
    bench.report.note(format!(
        "B19: one entity with as many callers as the line says; `spread` are {ENTITIES} entities and {SPREAD_CALLERS} callers. \
         The p99 is from sending until the caller knows of the decision."
    ));
    Ok(())
}

/// Adds the lines of one load: commands beside the better of the two others.
fn report(bench: &mut Bench, load: &Load, rounds: &[(Way, Round)]) {
    let of = |way| rounds.iter().find(|(other, _)| *other == way).map(|(_, round)| round);
    let (Some(command), Some(optimistic), Some(pessimistic)) =
        (of(Way::Command), of(Way::Optimistic), of(Way::Pessimistic))
    else {
        return;
    };
    let (others, key) = ([optimistic, pessimistic], load.key);
    let mut add = |part: &str, figure, base| bench.report.add(&format!("{key}{part}"), figure, base);
    let most = |all: [f64; 2]| all[0].max(all[1]);
    let least = |all: [f64; 2]| all[0].min(all[1]);
    add("", command.pace.per_second, Some(most(others.map(|round| round.pace.per_second))));
    add(" optimistic", optimistic.pace.per_second, None);
    add(" pessimistic", pessimistic.pace.per_second, None);
    let costs = others.map(|round| round.pace.micros);
    if let (Some(micros), [Some(one), Some(other)]) = (command.pace.micros, costs) {
        add(" processor", micros, Some(least([one, other])));
    }
    add(" p99", command.p99, Some(least(others.map(|round| round.p99))));
    add(" conflicts", optimistic.conflicts, None);
}

/// Decisions for a while, in a fresh database.
async fn decide(bench: &Bench, load: &Load, way: Way) -> Answer<Round> {
    let database = bench.server.database().await?;
    let mut connection = database.pool.acquire().await?;
    fill(&mut connection, load.entities).await?;
    drop(connection);
    let conflicts = Arc::new(Conflicts::default());
    let builder = database.engine(&bench.settings, &Meter::default()).await?;
    let builder = builder.provide(Optimistic(conflicts.clone()));
    let builder = builder.only::<scoop::Decider<Take>>().only::<Optimistic>().only::<Pessimistic>();
    let scoop = builder.start().await?;

    let (next, decided) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicUsize::new(0)));
    let stopped = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..load.callers)
        .map(|_| {
            let (scoop, next, entities) = (scoop.clone(), next.clone(), load.entities);
            let (decided, stopped) = (decided.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut times = vec![];
                while !stopped.load(Ordering::Relaxed) {
                    let product = next.fetch_add(1, Ordering::Relaxed) % entities;
                    let begun = Instant::now();
                    way.decide(&scoop, product).await?;
                    times.push((Instant::now(), begun.elapsed()));
                    decided.fetch_add(1, Ordering::Relaxed);
                }
                Answer::Ok(times)
            })
        })
        .collect();
    // On a machine with other work a second may not be enough for each caller's first decision.
    wait(WARM_UP, &decided, load.callers).await;
    let (processor, before) = (bench.processor_seconds().await?, conflicts.0.load(Ordering::Relaxed));
    let warm = Instant::now();
    wait(bench.seconds(), &decided, load.callers).await;
    let (until, used) = (Instant::now(), bench.micros_since(processor, 1.0).await?);
    let conflicts = conflicts.0.load(Ordering::Relaxed) - before;
    stopped.store(true, Ordering::Relaxed);
    let mut times: Vec<Duration> = vec![];
    for caller in callers {
        let all = caller.await??.into_iter();
        times.extend(all.filter(|(ended, _)| (warm..until).contains(ended)).map(|(_, time)| time));
    }
    scoop.shutdown().await?;
    scoop.pool().close().await;
    check(&database, way, next.load(Ordering::Relaxed)).await?;
    bench.server.remove(database).await?;
    // Both counts are far below the precision of a float.
    let (count, conflicts) = (times.len().max(1) as f64, conflicts as f64);
    Ok(Round {
        pace: Pace {
            per_second: count / (until - warm).as_secs_f64(),
            micros: used.map(|micros| micros / count),
        },
        p99: percentile_ms(&times, 99),
        conflicts: conflicts / count,
    })
}

/// Waits for this time, and until there are so many more decisions; for a minute at most.
async fn wait(time: Duration, decided: &AtomicUsize, more: usize) {
    let (begun, wanted) = (Instant::now(), decided.load(Ordering::Relaxed) + more);
    tokio::time::sleep(time).await;
    while decided.load(Ordering::Relaxed) < wanted && begun.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The units of each entity at the begin: more than are ever taken.
const UNITS: i64 = 1_000_000_000;

/// Makes the entities, for each way.
async fn fill(connection: &mut PgConnection, entities: i64) -> Answer<()> {
    let rows = "INSERT INTO public.stock (product, version, units) SELECT n, 0, $2 FROM generate_series(0, $1 - 1) n";
    sqlx::query(rows).bind(entities).bind(UNITS).execute(&mut *connection).await?;
    let states = "INSERT INTO scoop.entity (name, key, version, state)
        SELECT 'bench_stock', n::text, 0, jsonb_build_object('units', $2) FROM generate_series(0, $1 - 1) n";
    sqlx::query(states).bind(entities).bind(UNITS).execute(&mut *connection).await?;
    sqlx::raw_sql("VACUUM ANALYZE public.stock").execute(&mut *connection).await?;
    sqlx::raw_sql("VACUUM ANALYZE scoop.entity").execute(&mut *connection).await?;
    Ok(())
}

/// Checks that exactly so many units were taken.
async fn check(database: &crate::server::Database, way: Way, decided: i64) -> Answer<()> {
    let taken = match way {
        Way::Command => "SELECT sum(1e9 - (state ->> 'units')::float8)::float8 FROM scoop.entity",
        Way::Optimistic | Way::Pessimistic => "SELECT sum(1e9 - units)::float8 FROM public.stock",
    };
    let taken = database.number(taken).await?;
    if (taken - decided as f64).abs() > 0.5 {
        return Err(format!("{way:?}: {decided} units were to be taken, and {taken} were").into());
    }
    Ok(())
}
