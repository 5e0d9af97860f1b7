//! B18: signals, and the cost of runs that await them.

use std::time::{Duration, SystemTime};

use crate::bench::Bench;
use crate::drain::{self, Crowd};
use crate::growth;
use crate::latency::WARM_UP;
use crate::os_process;
use crate::outcome::Outcome;
use crate::sagas::{Approval, Meter, Request, Sleep};
use crate::server::Database;
use crate::stats::percentile_ms;
use crate::worker::{Kind, Worker};

/// Between two signals the engine comes to rest.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let crowded = with_waiting_runs(bench).await?;
    let mut count = 1000;
    for _ in 0..bench.settings.rounds {
        let empty = bench.server.database().await?;
        let more = resident(bench, &crowded).await? - resident(bench, &empty).await?;
        bench.report.add("B18 memory", more / 1e6, None);

        let starts = delays(bench, &crowded).await?;
        let launched = percentile_ms(&starts.launched, 50);
        bench.report.add("B18 start", percentile_ms(&starts.signalled, 50), Some(launched));
        bench.report.add("B18 start p99", percentile_ms(&starts.signalled, 99), None);

        drain::launch(&empty.client().await?, Crowd::Inserts, count).await?;
        let rate_empty = drain::drain(bench, &empty, Crowd::Inserts, count).await?.per_second;
        drain::launch(&crowded.client().await?, Crowd::Inserts, count).await?;
        let rate = drain::drain(bench, &crowded, Crowd::Inserts, count).await?.per_second;
        bench.report.add("B18", rate, Some(rate_empty));
        count = drain::for_a_round(bench, Crowd::Inserts, rate_empty);
        bench.server.remove(empty).await?;
    }
    bench.report.note(format!("B18: {} runs awaited signals.", bench.settings.sleeping));
    bench.server.remove(crowded).await
}

/// The memory of an idle process, in bytes.
async fn resident(bench: &Bench, database: &Database) -> Outcome<f64> {
    let mut worker = Worker::spawn(Kind::Plain, database.url(), &bench.settings).await?;
    worker.go().await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Memory is counted in pages: far below the precision of a float.
    let bytes = os_process::resident_bytes(worker.process_id()) as f64;
    worker.stop().await?;
    Ok(bytes)
}

/// Delays of steps.
struct Delays {
    /// From a launch to the start of the first step.
    launched: Vec<Duration>,
    /// From a signal to the start of the step that awaits it.
    signalled: Vec<Duration>,
}

/// The delays of steps in the process that launches and signals, in turns.
async fn delays(bench: &Bench, database: &Database) -> Outcome<Delays> {
    let meter = Meter::default();
    let scoop = database.engine(&bench.settings, &meter).await?.start().await?;
    let (mut delays, mut ended) = (Delays { launched: vec![], signalled: vec![] }, 0);
    for n in 1..=WARM_UP + bench.either(200, 60) {
        scoop.launch(Request { n }).await?;
        await_wait(database, n).await?;
        scoop.signal(Approval { due: now()? }, n.to_string()).await?;
        ended += 1;
        meter.wait_for(ended).await?;
        let signalled = meter.take_lateness();
        tokio::time::sleep(PAUSE).await;

        scoop.launch(Sleep { due: now()? }).await?;
        ended += 1;
        meter.wait_for(ended).await?;
        let launched = meter.take_lateness();
        tokio::time::sleep(PAUSE).await;
        if n > WARM_UP {
            delays.signalled.extend(signalled);
            delays.launched.extend(launched);
        }
    }
    scoop.shutdown().await?;
    scoop.pool().close().await;
    Ok(delays)
}

/// Returns when the run of this request awaits its signal.
async fn await_wait(database: &Database, n: i64) -> Outcome<()> {
    let waits = format!(
        "SELECT count(*)::float8 FROM scoop.run \
         WHERE state = 'ready' AND (awaited).signal = 'bench.approval' AND (awaited).key = '{n}'"
    );
    while database.number(&waits).await? < 1.0 {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Nanoseconds since 1970.
fn now() -> Outcome<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos())?)
}

/// A database with so many runs that await signals, which never come.
async fn with_waiting_runs(bench: &Bench) -> Outcome<Database> {
    let database = bench.server.database().await?;
    let meter = Meter::default();
    let scoop = database.engine(&bench.settings, &meter).await?.start().await?;
    scoop.launch(Request { n: 0 }).await?;
    await_wait(&database, 0).await?;
    scoop.shutdown().await?;
    scoop.pool().close().await;
    growth::copy(&database, bench.settings.sleeping, &[], include_str!("../sql/waiting_runs.sql")).await?;
    database.execute("VACUUM ANALYZE").await?;
    database.execute("CHECKPOINT").await?;
    Ok(database)
}
