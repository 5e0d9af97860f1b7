//! B6: the latency of a single saga on an idle engine.

use std::time::{Duration, Instant, SystemTime};

use scoop::Scoop;

use crate::bench::Bench;
use crate::outcome::Outcome;
use crate::sagas::{Idle, Meter};
use crate::server::Database;
use crate::stats::percentile_ms;
use crate::worker::{Kind, Worker};

/// Between two sagas the engine comes to rest.
const PAUSE: Duration = Duration::from_millis(20);

/// The first sagas open connections and plan statements.
pub(crate) const WARM_UP: i64 = 20;

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    for _ in 0..bench.settings.rounds {
        let step = bench.step_ms().await?;
        let database = bench.server.database().await?;
        let same = same_process(bench, &database).await?;
        let other = other_process(bench, &database).await?;
        bench.server.remove(database).await?;
        bench.report.add("B6 same", percentile_ms(&same, 50), Some(step));
        bench.report.add("B6 same p99", percentile_ms(&same, 99), None);
        bench.report.add("B6 other", percentile_ms(&other, 50), Some(step));
        bench.report.add("B6 other p99", percentile_ms(&other, 99), None);
    }
    Ok(())
}

/// From the launch to the return of `wait`, in the process that runs the engine.
pub(crate) async fn same_process(bench: &Bench, database: &Database) -> Outcome<Vec<Duration>> {
    let scoop = database.engine(&bench.settings, &Meter::default()).await?.start().await?;
    let mut times = vec![];
    for n in 0..WARM_UP + count(bench) {
        let begun = Instant::now();
        scoop.launch(Idle { n }).await?.wait().await?;
        let time = begun.elapsed();
        if n >= WARM_UP {
            times.push(time);
        }
        tokio::time::sleep(PAUSE).await;
    }
    scoop.shutdown().await?;
    scoop.pool().close().await;
    Ok(times)
}

/// From the launch here to the moment when the other process knows of the end.
async fn other_process(bench: &Bench, database: &Database) -> Outcome<Vec<Duration>> {
    let mut worker = Worker::spawn(Kind::Reporting, database.url(), &bench.settings).await?;
    worker.go().await?;
    let client = Scoop::client(database.pool.clone());
    let mut times = vec![];
    for n in 0..WARM_UP + count(bench) {
        let begun = SystemTime::now();
        client.launch(Idle { n }).await?;
        let time = reported_time(&worker.answer().await?, n)?.duration_since(begun).unwrap_or_default();
        if n >= WARM_UP {
            times.push(time);
        }
        tokio::time::sleep(PAUSE).await;
    }
    worker.stop().await?;
    Ok(times)
}

/// The time at which the worker reported the end of this saga.
fn reported_time(line: &str, n: i64) -> Outcome<SystemTime> {
    let (number, nanos) = line.split_once(' ').ok_or_else(|| format!("the worker said {line}"))?;
    if number.parse() != Ok(n) {
        return Err(format!("the worker reported saga {number}, not {n}").into());
    }
    Ok(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos.parse()?))
}

fn count(bench: &Bench) -> i64 {
    bench.either(200, 60)
}
