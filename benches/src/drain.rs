//! B1, B2, B3, B5, B9, B15: how fast an engine works off ready runs.
//!
//! The messages are launched before the engine starts; trees once it is warm. The time runs from the warm
//! engine to the last recorded event, by the server's clock. It counts only once the working set is empty.

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::time::{Duration, Instant};

use scoop::{Builder, Handle, Priority, RuntimeError, Scoop};

use crate::baseline::{CLIENTS, Script, WARM_UP};
use crate::bench::{Bench, Pace};
use crate::limits::{Limited, LimitedByKey, Narrow, Rated, RatedByKey};
use crate::outcome::Outcome;
use crate::sagas::{self, Ballast, Idle, Insert, Load, Meter, Plant};
use crate::server::Database;

/// Messages in one launch.
const BATCH: i64 = 1000;

/// Sagas of a first, short drain, which finds out how many a round needs.
const PROBE: i64 = 600;

/// Trees that warm up an engine. Trees of the measure itself would all begin in the first second. Their first
/// steps are the most expensive ones, so the steps left after that second would be too cheap.
const TREES_BEFORE: i64 = 100;

/// Limit of the wait for the end of the last run.
const SETTLED_WITHIN: Duration = Duration::from_secs(1800);

/// Size of the payloads and contexts of B15.
const BALLAST_BYTES: usize = 4000;

/// The priorities of `Crowd::Prioritized`.
const PRIORITIES: [Priority; 3] = [Priority::Low, Priority::Normal, Priority::High];

/// The kind of sagas in a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crowd {
    Inserts,
    Idles,
    Trees,
    FellingTrees,
    Loaded,
    Limited,
    Narrow,
    LimitedByKey,
    Rated,
    RatedByKey,
    /// As `Inserts`, a third of them at each priority.
    Prioritized,
}

/// B1 to B5 and B15: rounds of a fresh database each.
pub(crate) async fn measure(bench: &mut Bench, key: &str, crowd: Crowd) -> Outcome<()> {
    let mut count = PROBE;
    count = for_a_round(bench, crowd, fresh(bench, crowd, count).await?.per_second);
    for _ in 0..bench.settings.rounds {
        let limit = match crowd {
            Crowd::Loaded => {
                let rate = bench.limit.rate(Script::LoadedStep, CLIENTS).await?.per_second;
                Pace { per_second: rate, micros: None }
            }
            _ => bench.limit_pace().await?,
        };
        let pace = fresh(bench, crowd, count).await?;
        let rate = pace.per_second;
        bench.report.add(key, rate, Some(limit.per_second));
        bench.add_cost(key, pace, limit);
        if key == "B1" {
            let protocol = bench.limit.rate(Script::ProtocolStep, CLIENTS).await?.per_second;
            bench.report.add("B1 protocol", rate, Some(protocol));
        }
        count = for_a_round(bench, crowd, rate);
    }
    bench.report.note(format!("{key}: the last round was of about {count} sagas."));
    Ok(())
}

/// B9: on tables with statistics of their first day.
pub(crate) async fn measure_backlog(bench: &mut Bench) -> Outcome<()> {
    let count = bench.settings.backlog.unwrap_or(200_000);
    for _ in 0..bench.settings.rounds {
        let limit = bench.limit().await?;
        let database = bench.server.database().await?;
        database.execute(NEVER_ANALYSED).await?;
        launch(&database.client().await?, Crowd::Inserts, count).await?;
        let rate = drain(bench, &database, Crowd::Inserts, count).await?.per_second;
        bench.server.remove(database).await?;
        bench.report.add("B9", rate, Some(limit));
    }
    bench.report.note(format!("B9: {count} runs were ready."));
    Ok(())
}

const NEVER_ANALYSED: &str = "
    ALTER TABLE scoop.run SET (autovacuum_enabled = false);
    ALTER TABLE scoop.message SET (autovacuum_enabled = false);
    ALTER TABLE scoop.message_event SET (autovacuum_enabled = false);
    ALTER TABLE public.entry SET (autovacuum_enabled = false)";

/// Steps per second of so many sagas, in a fresh database.
pub(crate) async fn fresh(bench: &Bench, crowd: Crowd, count: i64) -> Outcome<Pace> {
    let database = bench.server.database().await?;
    let pace = if crowd.is_of_trees() {
        grow(bench, &database, crowd, count).await?
    } else {
        launch(&database.client().await?, crowd, count).await?;
        drain(bench, &database, crowd, count).await?
    };
    bench.server.remove(database).await?;
    Ok(pace)
}

/// Steps per second of trees that are launched once the engine is warm.
async fn grow(bench: &Bench, database: &Database, crowd: Crowd, count: i64) -> Outcome<Pace> {
    let (meter, client) = (Meter::default(), database.client().await?);
    let scoop = database.engine(&bench.settings, &meter).await?.start().await?;
    launch(&client, crowd, TREES_BEFORE).await?;
    meter.wait_for(TREES_BEFORE.unsigned_abs()).await?;
    settled(database).await?;
    let (before, begun) = (bench.processor_seconds().await?, database.now().await?);
    launch(&client, crowd, count).await?;
    meter.wait_for((TREES_BEFORE + count).unsigned_abs()).await?;
    let (ended, steps) = (settled(database).await?, steps(crowd, count));
    let micros = bench.micros_since(before, steps).await?;
    scoop.shutdown().await?;
    scoop.pool().close().await;
    Ok(Pace { per_second: steps / (ended - begun), micros })
}

/// The number of sagas for a round, warm-up included, at this rate of steps.
pub(crate) fn for_a_round(bench: &Bench, crowd: Crowd, rate: f64) -> i64 {
    let sagas = rate / crowd.steps() * (bench.seconds() + WARM_UP).as_secs_f64();
    // A count of hundreds is near enough, and needs no cast.
    let hundreds = (1..=5000).take_while(|hundreds| f64::from(*hundreds) * 100.0 <= sagas).last();
    hundreds.map_or(100, |hundreds| i64::from(hundreds) * 100)
}

/// Steps per second of the sagas that have been launched.
pub(crate) async fn drain(bench: &Bench, database: &Database, crowd: Crowd, count: i64) -> Outcome<Pace> {
    drain_with(bench, database, crowd, count, |builder, _| builder).await
}

/// The same by an engine with further settings.
pub(crate) async fn drain_with(
    bench: &Bench,
    database: &Database,
    crowd: Crowd,
    count: i64,
    set: impl FnOnce(Builder, &Meter) -> Builder,
) -> Outcome<Pace> {
    let meter = Meter::default();
    let builder = set(database.engine(&bench.settings, &meter).await?, &meter);
    let (begun, cold) = (database.now().await?, bench.processor_seconds().await?);
    let scoop = builder.start().await?;
    let mut warm = None;
    let mut all = pin!(meter.wait_for(count.unsigned_abs()));
    match tokio::time::timeout(WARM_UP, &mut all).await {
        Ok(done) => done?,
        Err(_) => {
            warm = Some((database.now().await?, bench.processor_seconds().await?));
            all.await?;
        }
    }
    let ended = settled(database).await?;
    let warm = warm.filter(|(at, _)| is_enough(*at, ended));
    let micros = bench.micros_since(warm.map_or(cold, |(_, seconds)| seconds), 1.0).await?;
    scoop.shutdown().await?;
    scoop.pool().close().await;
    let counted = Counted::of(database, begun, warm.map(|(at, _)| at)).await?;
    let steps = steps(crowd, count) * counted.part;
    Ok(Pace { per_second: steps / (ended - counted.since), micros: micros.map(|all| all / steps) })
}

/// Whether the drain went on for long enough after the warm-up. Otherwise all of it has to count.
pub(crate) fn is_enough(warm: f64, ended: f64) -> bool {
    ended - warm > WARM_UP.as_secs_f64()
}

/// The part of a drain that counts.
pub(crate) struct Counted {
    /// Its begin, by the server's clock.
    pub(crate) since: f64,
    /// The share of the steps taken since then.
    pub(crate) part: f64,
}

impl Counted {
    /// The part since the engine was warm, or all of a drain that began at `begun`.
    pub(crate) async fn of(database: &Database, begun: f64, warm: Option<f64>) -> Outcome<Self> {
        let Some(warm) = warm else {
            let first = format!(
                "SELECT extract(epoch FROM min(created_at))::float8 FROM scoop.message_event
                 WHERE type = 'SEEN' AND created_at > to_timestamp({begun})"
            );
            return Ok(Self { since: database.number(&first).await?, part: 1.0 });
        };
        let part = format!(
            "SELECT avg((created_at > to_timestamp({warm}))::int)::float8 FROM scoop.message_event
             WHERE type = 'SUSPENDED' AND created_at > to_timestamp({begun})"
        );
        Ok(Self { since: warm, part: database.number(&part).await? })
    }
}

/// Waits until only runs that sleep, await a signal or are paused are left. Returns the time of the last event, by the server's clock.
pub(crate) async fn settled(database: &Database) -> Outcome<f64> {
    const LEFT: &str = "
        SELECT count(*)::float8 FROM (
            SELECT FROM scoop.run
            WHERE topic LIKE 'bench.%' AND topic NOT IN ('bench.sleep', 'bench.request')
              AND handler::text NOT IN (SELECT covers FROM scoop.paused)
            LIMIT 1
        ) one";
    let since = Instant::now();
    while database.number(LEFT).await? > 0.0 {
        if since.elapsed() > SETTLED_WITHIN {
            return Err("some runs never ended".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    database.number("SELECT extract(epoch FROM max(created_at))::float8 FROM scoop.message_event").await
}

/// The number of steps of so many sagas.
pub(crate) fn steps(crowd: Crowd, count: i64) -> f64 {
    // Both are far below the precision of a float.
    crowd.steps() * count as f64
}

impl Crowd {
    fn is_of_trees(self) -> bool {
        matches!(self, Self::Trees | Self::FellingTrees)
    }

    /// The user's transactions of each saga.
    fn steps(self) -> f64 {
        match self {
            Self::Trees => sagas::TREE_STEPS,
            Self::FellingTrees => sagas::TREE_ROLLBACK_STEPS,
            _ => 3.0,
        }
    }
}

/// Launches so many, a thousand at once if they have no ballast.
pub(crate) async fn launch(client: &Scoop, crowd: Crowd, count: i64) -> Outcome<()> {
    if crowd == Crowd::Loaded {
        return launch_loaded(client, count).await;
    }
    for first in (0..count).step_by(usize::try_from(BATCH)?) {
        let numbers = first..(first + BATCH).min(count);
        match crowd {
            Crowd::Idles => client.launch_all(numbers.map(|n| Idle { n })).await?,
            Crowd::Trees => client.launch_all(numbers.map(|n| Plant { n, fails: false })).await?,
            Crowd::FellingTrees => client.launch_all(numbers.map(|n| Plant { n, fails: true })).await?,
            Crowd::Limited => client.launch_all(numbers.map(|n| Limited { n })).await?,
            Crowd::LimitedByKey => client.launch_all(numbers.map(|n| LimitedByKey { n })).await?,
            Crowd::Narrow => client.launch_all(numbers.map(|n| Narrow { n })).await?,
            Crowd::Rated => client.launch_all(numbers.map(|n| Rated { n })).await?,
            Crowd::RatedByKey => client.launch_all(numbers.map(|n| RatedByKey { n })).await?,
            Crowd::Prioritized => {
                let priority = PRIORITIES[usize::try_from(first / BATCH)? % PRIORITIES.len()];
                client.launch_all(numbers.map(|n| Insert { n })).priority(priority).await?
            }
            Crowd::Inserts | Crowd::Loaded => client.launch_all(numbers.map(|n| Insert { n })).await?,
        };
    }
    Ok(())
}

async fn launch_loaded(client: &Scoop, count: i64) -> Outcome<()> {
    let client = client.clone();
    launch_singly(count, move |n| {
        let message = Load { n, ballast: noise(BALLAST_BYTES) };
        client.launch(message).with(Ballast(noise(BALLAST_BYTES))).into_future()
    })
    .await
}

/// Launches so many messages, each by itself, from as many callers as `pgbench` has clients.
pub(crate) async fn launch_singly<L, F>(count: i64, launch: L) -> Outcome<()>
where
    L: Fn(i64) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Handle, RuntimeError>> + Send,
{
    let callers: Vec<_> = (0..i64::from(CLIENTS))
        .map(|caller| {
            let launch = launch.clone();
            tokio::spawn(async move {
                for n in (caller..count).step_by(CLIENTS as usize) {
                    launch(n).await?;
                }
                Outcome::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(())
}

/// Text that compression does not shrink.
fn noise(bytes: usize) -> String {
    let hash = RandomState::new();
    let mut noise: String = (0..bytes.div_ceil(16)).map(|n| format!("{:016x}", hash.hash_one(n))).collect();
    noise.truncate(bytes);
    noise
}
