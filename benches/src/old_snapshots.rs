//! B26: a steady load beside an open snapshot, so that no dead row can be removed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use scoop::prelude::*;
use scoop::{Builder, Scoop};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::Bench;
use crate::outcome::Outcome;
use crate::sagas::Meter;
use crate::server::Database;
use crate::stats;

/// Messages are launched so often, each time as many as are due.
const TICK: Duration = Duration::from_millis(10);

/// The keys of the saga with a limit, of each of which four runs are executed at once.
const KEYS: i64 = 100;

/// The queries that overlap, and the duration of each.
const QUERIES: u32 = 3;
const QUERY: Duration = Duration::from_secs(120);

/// How long after its time each run began.
#[derive(Clone, Default)]
struct Begun(Arc<Mutex<Vec<Duration>>>);

impl Begun {
    /// Notes a run that was to be launched at this time, in nanoseconds since 1970.
    fn note(&self, due: u64) {
        let due = SystemTime::UNIX_EPOCH + Duration::from_nanos(due);
        let late = due.elapsed().unwrap_or_default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(late);
    }

    fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The message of [`OfferedRuns`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.offered")]
struct Offered {
    due: u64,
}

/// One step that does not touch the database.
struct OfferedRuns(Begun);

#[saga]
#[subscribes(Offered)]
impl OfferedRuns {
    #[step]
    async fn only(&self, _: &mut Scope<'_>, message: &Offered) -> Result<()> {
        self.0.note(message.due);
        Ok(())
    }
}

/// The message of [`OfferedRunsByKey`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.offered-by-key")]
struct OfferedByKey {
    due: u64,
    key: i64,
}

/// The same with a limit by key.
struct OfferedRunsByKey(Begun);

#[saga(concurrency(4, by = key))]
#[subscribes(OfferedByKey)]
impl OfferedRunsByKey {
    #[step]
    async fn only(&self, _: &mut Scope<'_>, message: &OfferedByKey) -> Result<()> {
        self.0.note(message.due);
        Ok(())
    }
}

/// What others do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A transaction that only reads is open all the time.
    Snapshot,
    /// Long queries that overlap.
    Queries,
}

/// A minute of the load.
struct Minute {
    per_second: f64,
    p99: f64,
    /// Blocks that all sessions read, for each run.
    blocks: f64,
    dead: f64,
}

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let Some(minutes) = bench.settings.minutes else {
        bench
            .report
            .note("B26 is left out: it takes an hour; ask for it with --minutes N, such as 10.".into());
        return Ok(());
    };
    for (key, is_by_key) in [("B26", false), ("B26 by key", true)] {
        let without = load(bench, minutes, is_by_key, Beside::Nothing).await?;
        for (key, beside) in [(key.to_owned(), Beside::Snapshot), (format!("{key} queries"), Beside::Queries)]
        {
            let with = load(bench, minutes, is_by_key, beside).await?;
            let (Some(with_last), Some(without_last)) = (with.last(), without.last()) else { continue };
            bench.report.add(&key, with_last.per_second, Some(without_last.per_second));
            bench.report.add(&format!("{key} p99"), with_last.p99, Some(without_last.p99));
            let first = with.first().map(|minute| minute.blocks);
            bench.report.add(&format!("{key} blocks"), with_last.blocks, first);
            for (name, series) in [("without", &without), ("beside it", &with)] {
                let each = |of: fn(&Minute) -> f64| {
                    series.iter().map(|minute| format!("{:.1}", of(minute))).collect::<Vec<_>>().join(" ")
                };
                bench.report.note(format!(
                    "{key}, minute by minute, {name}: runs/s {}; p99 in ms {}; blocks for each run {}; dead rows {}.",
                    each(|it| it.per_second),
                    each(|it| it.p99),
                    each(|it| it.blocks),
                    each(|it| it.dead)
                ));
            }
        }
    }
    bench.report.note(format!("B26: {} runs were offered in each second.", bench.settings.rate));
    Ok(())
}

/// The minutes of a load in a fresh database.
async fn load(bench: &Bench, minutes: u32, is_by_key: bool, beside: Beside) -> Outcome<Vec<Minute>> {
    let database = bench.server.database().await?;
    let (begun, meter) = (Begun::default(), Meter::default());
    let builder = database.engine(&bench.settings, &meter).await?;
    let scoop = with_saga(builder, is_by_key, &begun).start().await?;
    let client = database.client().await?;
    let mut others = JoinSet::new();
    let pool = PgPoolOptions::new().max_connections(QUERIES).connect(database.url()).await?;
    match beside {
        Beside::Nothing => {}
        Beside::Snapshot => drop(others.spawn(keep_snapshot(pool.clone()))),
        Beside::Queries => (0..QUERIES).for_each(|nth| drop(others.spawn(query(pool.clone(), nth)))),
    }
    let offering = tokio::spawn(offer(client, bench.settings.rate, is_by_key));
    let mut series = vec![];
    // The first seconds are those of a cold engine.
    tokio::time::sleep(Duration::from_secs(5)).await;
    begun.take();
    for _ in 0..minutes {
        series.push(minute(&database, &begun).await?);
        if offering.is_finished() {
            return Err("the launches have ended".into());
        }
    }
    offering.abort();
    others.shutdown().await;
    pool.close().await;
    scoop.shutdown().await?;
    scoop.pool().close().await;
    bench.server.remove(database).await?;
    Ok(series)
}

fn with_saga(builder: Builder, is_by_key: bool, begun: &Begun) -> Builder {
    match is_by_key {
        false => builder.only::<OfferedRuns>().provide(OfferedRuns(begun.clone())),
        true => builder.only::<OfferedRunsByKey>().provide(OfferedRunsByKey(begun.clone())),
    }
}

async fn minute(database: &Database, begun: &Begun) -> Outcome<Minute> {
    const BLOCKS: &str =
        "SELECT (blks_hit + blks_read)::float8 FROM pg_stat_database WHERE datname = current_database()";
    const DEAD: &str =
        "SELECT n_dead_tup::float8 FROM pg_stat_user_tables WHERE relid = 'scoop.run'::regclass";
    let (before, since) = (database.number(BLOCKS).await?, Instant::now());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (late, seconds) = (begun.take(), since.elapsed().as_secs_f64());
    let blocks = database.number(BLOCKS).await? - before;
    let count = f64::from(u32::try_from(late.len())?);
    let p99 = stats::percentile_ms(&late, 99);
    Ok(Minute {
        per_second: count / seconds,
        p99,
        blocks: blocks / count,
        dead: database.number(DEAD).await?,
    })
}

/// Launches so many messages in each second, whether or not they are worked off.
async fn offer(client: Scoop, rate: u32, is_by_key: bool) -> Outcome<()> {
    let (begun, start, mut launches) = (Instant::now(), SystemTime::now(), JoinSet::new());
    let (mut offered, mut tick) = (0_u32, tokio::time::interval(TICK));
    loop {
        tick.tick().await;
        while launches.try_join_next().is_some() {}
        let mut due = vec![];
        while f64::from(offered) < begun.elapsed().as_secs_f64() * f64::from(rate) {
            let at = start + Duration::from_secs_f64(f64::from(offered) / f64::from(rate));
            let nanos = at.duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
            due.push((u64::try_from(nanos)?, i64::from(offered) % KEYS));
            offered += 1;
        }
        let client = client.clone();
        launches.spawn(async move {
            let launched = match is_by_key {
                false => client.launch_all(due.into_iter().map(|(due, _)| Offered { due })).await,
                true => client.launch_all(due.into_iter().map(|(due, key)| OfferedByKey { due, key })).await,
            };
            if let Err(error) = launched {
                eprintln!("a launch failed: {error}");
            }
        });
    }
}

async fn keep_snapshot(pool: PgPool) -> Outcome<()> {
    let mut session = pool.acquire().await?;
    let open = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT FROM scoop.run LIMIT 1";
    sqlx::raw_sql(open).execute(&mut *session).await?;
    std::future::pending().await
}

async fn query(pool: PgPool, nth: u32) -> Outcome<()> {
    let mut session = pool.acquire().await?;
    tokio::time::sleep(QUERY / QUERIES * nth).await;
    loop {
        sqlx::query("SELECT pg_sleep($1)").bind(QUERY.as_secs_f64()).execute(&mut *session).await?;
    }
}
