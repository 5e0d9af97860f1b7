//! F1, F2: the latency of a single saga that shares an engine with a crowd of others.

use std::time::{Duration, Instant};

use scoop::Scoop;
use scoop::pauses::PauseTarget;
use scoop::prelude::*;

use crate::bench::Bench;
use crate::drain::{self, Crowd};
use crate::fan_out;
use crate::latency::WARM_UP;
use crate::limits::{self, LimitedAlone, LimitedSpread};
use crate::outcome::Outcome;
use crate::sagas::{Alone, Meter, Spread};
use crate::stats::percentile_ms;

/// The pause between two sagas.
const PAUSE: Duration = Duration::from_millis(20);

/// Longest duration of a round beside a crowd.
const LONGEST: Duration = Duration::from_secs(10);

/// A saga that has not ended by then counts with this time, and no further one is launched.
const PATIENCE: Duration = Duration::from_secs(30);

/// The backlogs with limits and priorities.
const BACKLOGS: [(&str, Crowd); 4] = [
    ("F1 limited", Crowd::LimitedByKey),
    ("F1 concurrency", Crowd::Narrow),
    ("F1 rate", Crowd::RatedByKey),
    ("F1 priority", Crowd::Prioritized),
];

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let backlog = bench.settings.backlog.unwrap_or(100_000);
    for _ in 0..bench.settings.rounds {
        let idle = beside_nothing(bench).await?;
        let (idle_p50, idle_p99) = (percentile_ms(&idle, 50), percentile_ms(&idle, 99));
        bench.report.add("F1 idle", idle_p99, None);
        let crowded = beside_backlog(bench, Crowd::Inserts, backlog, lone).await?;
        bench.report.add("F1", percentile_ms(&crowded, 99), Some(idle_p99));
        bench.report.add("F1 p50", percentile_ms(&crowded, 50), Some(idle_p50));
        for (key, crowd) in BACKLOGS {
            let times = beside_backlog(bench, crowd, backlog, lone).await?;
            bench.report.add(key, percentile_ms(&times, 99), Some(idle_p99));
        }
        let both = beside_backlog(bench, Crowd::LimitedByKey, backlog, lone_with_limit).await?;
        bench.report.add("F1 both", percentile_ms(&both, 99), Some(idle_p99));
        let paused = beside_paused(bench, backlog).await?;
        bench.report.add("F1 pause", percentile_ms(&paused, 99), Some(idle_p99));
        let fanned = beside_fan_out(bench, Spread { n: 0, children: fan_out::MANY }).await?;
        bench.report.add("F2", percentile_ms(&fanned, 99), Some(idle_p99));
        bench.report.add("F2 p50", percentile_ms(&fanned, 50), Some(idle_p50));
        let limited = beside_fan_out(bench, LimitedSpread { children: fan_out::MANY }).await?;
        bench.report.add("F2 limited", percentile_ms(&limited, 99), Some(idle_p99));
        bench.report.add("F1 count", count(&crowded), None);
        bench.report.add("F2 count", count(&fanned), None);
    }
    let patience = PATIENCE.as_secs();
    bench.report.note(format!("F1: the backlog was of {backlog} ready runs."));
    bench.report.note(format!(
        "F1, F2: a saga that takes more than {patience} s counts with that, and no further one is launched."
    ));
    Ok(())
}

/// Launches the lone saga.
fn lone(n: i64) -> impl Message {
    Alone { n }
}

/// Launches the one with a limit.
fn lone_with_limit(n: i64) -> impl Message {
    LimitedAlone { n }
}

async fn beside_nothing(bench: &Bench) -> Outcome<Vec<Duration>> {
    let database = bench.server.database().await?;
    let scoop = database.engine(&bench.settings, &Meter::default()).await?.start().await?;
    alone(&scoop, WARM_UP, lone, || true).await?;
    let times = alone(&scoop, bench.either(200, 60), lone, || true).await?;
    stop(scoop).await;
    bench.server.remove(database).await?;
    Ok(times)
}

async fn beside_backlog<M: Message>(
    bench: &Bench,
    crowd: Crowd,
    backlog: i64,
    lone: impl Fn(i64) -> M,
) -> Outcome<Vec<Duration>> {
    let database = bench.server.database().await?;
    limits::register(bench, &database, crowd).await?;
    drain::launch(&database.client().await?, crowd, backlog).await?;
    let meter = Meter::default();
    let builder = limits::with_lone(database.engine(&bench.settings, &meter).await?);
    let scoop = limits::with_saga(crowd, builder, &meter).start().await?;
    alone(&scoop, WARM_UP, &lone, || true).await?;
    let enough = backlog.unsigned_abs() * 9 / 10;
    let times = alone(&scoop, 1000, &lone, || meter.ended() < enough).await?;
    stop(scoop).await;
    bench.server.remove(database).await?;
    Ok(times)
}

/// Beside runs that are pending, since their saga is paused.
async fn beside_paused(bench: &Bench, backlog: i64) -> Outcome<Vec<Duration>> {
    let database = bench.server.database().await?;
    let client = database.client().await?;
    limits::register(bench, &database, Crowd::Inserts).await?;
    client.operate().pauses().pause(PauseTarget::Handler("inserts".into())).await?;
    drain::launch(&client, Crowd::Inserts, backlog).await?;
    let meter = Meter::default();
    let scoop = database.engine(&bench.settings, &meter).await?.start().await?;
    alone(&scoop, WARM_UP, lone, || true).await?;
    let times = alone(&scoop, 1000, lone, || true).await?;
    if meter.ended() > 0 {
        return Err(format!("{} runs of the paused saga have ended", meter.ended()).into());
    }
    stop(scoop).await;
    bench.server.remove(database).await?;
    Ok(times)
}

async fn beside_fan_out<M: Message>(bench: &Bench, parent: M) -> Outcome<Vec<Duration>> {
    let database = bench.server.database().await?;
    let meter = Meter::default();
    let builder = database.engine(&bench.settings, &meter).await?;
    let scoop = limits::with_fan(builder, &meter).start().await?;
    fan_out::warm_up(&scoop).await?;
    alone(&scoop, WARM_UP, lone, || true).await?;
    let before = meter.ended();
    scoop.launch(parent).await?;
    let times = alone(&scoop, 1000, lone, || meter.ended() == before).await?;
    stop(scoop).await;
    bench.server.remove(database).await?;
    Ok(times)
}

/// The latencies of so many sagas, one after another, as long as the crowd is there.
async fn alone<M: Message>(
    scoop: &Scoop,
    count: i64,
    lone: impl Fn(i64) -> M,
    goes_on: impl Fn() -> bool,
) -> Outcome<Vec<Duration>> {
    let mut times = vec![];
    let looking_since = Instant::now();
    for n in 0..count {
        if !goes_on() || looking_since.elapsed() > LONGEST {
            break;
        }
        let begun = Instant::now();
        let saga = async { scoop.launch(lone(n)).await?.wait().await };
        let Ok(ended) = tokio::time::timeout(PATIENCE, saga).await else {
            times.push(PATIENCE);
            break;
        };
        ended?;
        times.push(begun.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    if times.is_empty() {
        return Err("the crowd was gone before anything could be measured; it has to be larger".into());
    }
    Ok(times)
}

fn count(times: &[Duration]) -> f64 {
    u32::try_from(times.len()).map_or(f64::INFINITY, f64::from)
}

async fn stop(scoop: Scoop) {
    scoop.shutdown().await.unwrap();
    scoop.pool().close().await;
}
