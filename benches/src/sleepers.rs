//! B10: the cost of sleeping runs.

use std::time::{Duration, SystemTime};

use crate::bench::Bench;
use crate::drain::{self, Crowd};
use crate::growth;
use crate::os_process;
use crate::outcome::Outcome;
use crate::sagas::Sleep;
use crate::server::Database;
use crate::stats::percentile_ms;
use crate::worker::{Kind, Worker};

/// The number of sleepers that become due during the measure.
const WAKING: u32 = 300;

/// The first of them wakes up so long after the launch of all began. The others follow at this distance.
const FIRST: Duration = Duration::from_secs(3);
const EACH: Duration = Duration::from_millis(10);

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let asleep = with_sleepers(bench).await?;
    let mut count = 1000;
    for _ in 0..bench.settings.rounds {
        let empty = bench.server.database().await?;
        let (bytes_empty, late_empty) = watched(bench, &empty).await?;
        let (bytes, late) = watched(bench, &asleep).await?;
        bench.report.add("B10 memory", (bytes - bytes_empty) / 1e6, None);
        bench.report.add("B10 lateness", percentile_ms(&late, 99), None);
        bench.report.add("B10 lateness p50", percentile_ms(&late, 50), None);
        bench.report.add("B10 lateness empty", percentile_ms(&late_empty, 99), None);

        drain::launch(&empty.client().await?, Crowd::Inserts, count).await?;
        let rate_empty = drain::drain(bench, &empty, Crowd::Inserts, count).await?.per_second;
        drain::launch(&asleep.client().await?, Crowd::Inserts, count).await?;
        let rate = drain::drain(bench, &asleep, Crowd::Inserts, count).await?.per_second;
        bench.report.add("B10", rate, Some(rate_empty));
        count = drain::for_a_round(bench, Crowd::Inserts, rate_empty);
        bench.server.remove(empty).await?;
    }
    bench.report.note(format!("B10: {} runs slept.", bench.settings.sleeping));
    bench.server.remove(asleep).await
}

/// The memory of a process that has woken some sleepers, in bytes, and their delays.
async fn watched(bench: &Bench, database: &Database) -> Outcome<(f64, Vec<Duration>)> {
    let mut worker = Worker::spawn(Kind::Plain, database.url(), &bench.settings).await?;
    worker.go().await?;
    let client = database.client().await?;
    let first = SystemTime::now() + FIRST;
    for n in 0..WAKING {
        let due = first + EACH * n;
        let nanos = due.duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
        client.launch(Sleep { due: u64::try_from(nanos)? }).delay(due).await?;
    }
    let mut late = vec![];
    while late.len() < WAKING as usize {
        tokio::time::sleep(Duration::from_millis(200)).await;
        worker.order("lateness").await?;
        for micros in worker.answer().await?.split_whitespace() {
            late.push(Duration::from_micros(micros.parse()?));
        }
    }
    // Memory is counted in pages: far below the precision of a float.
    let bytes = os_process::resident_bytes(worker.process_id()) as f64;
    worker.stop().await?;
    client.pool().close().await;
    Ok((bytes, late))
}

/// A database with so many sleepers, none of which wakes up during the measure.
pub(crate) async fn with_sleepers(bench: &Bench) -> Outcome<Database> {
    let database = bench.server.database().await?;
    let client = database.client().await?;
    client.launch(Sleep { due: 0 }).delay(Duration::from_secs(24 * 3600)).await?;
    growth::copy(&database, bench.settings.sleeping, &[], include_str!("../sql/sleepers.sql")).await?;
    database.execute("VACUUM ANALYZE").await?;
    database.execute("CHECKPOINT").await?;
    Ok(database)
}
