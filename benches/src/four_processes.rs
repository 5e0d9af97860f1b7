//! B12: one backlog, worked off by four processes or by one, with the same connections in all.

use crate::args::Settings;
use crate::baseline::WARM_UP;
use crate::bench::Bench;
use crate::drain::{self, Counted, Crowd};
use crate::outcome::Outcome;
use crate::worker::{Kind, Worker};

/// The number of processes that share the work.
const PROCESSES: u32 = 4;

/// The connections of all processes together. A fourth of them is the least that an engine can use well.
const CONNECTIONS: u32 = 40;

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let mut count = drain::for_a_round(bench, Crowd::Inserts, round(bench, 1, 2000).await?);
    for _ in 0..bench.settings.rounds {
        let one = round(bench, 1, count).await?;
        let four = round(bench, PROCESSES, count).await?;
        bench.report.add("B12", four, Some(one));
        count = drain::for_a_round(bench, Crowd::Inserts, one);
    }
    bench.report.note(format!("B12: {CONNECTIONS} connections in all, four of each process for its engine."));
    Ok(())
}

async fn round(bench: &Bench, processes: u32, count: i64) -> Outcome<f64> {
    let database = bench.server.database().await?;
    drain::launch(&database.client().await?, Crowd::Inserts, count).await?;
    let settings = Settings {
        pool: CONNECTIONS / processes,
        concurrency: bench.settings.concurrency / usize::try_from(processes)?,
        ..bench.settings.clone()
    };
    let mut workers = vec![];
    for _ in 0..processes {
        workers.push(Worker::spawn(Kind::Plain, database.url(), &settings).await?);
    }
    let begun = database.now().await?;
    for worker in &mut workers {
        worker.go().await?;
    }
    tokio::time::sleep(WARM_UP).await;
    let warm = database.now().await?;
    let ended = drain::settled(&database).await?;
    for worker in workers {
        worker.stop().await?;
    }
    let warm = Some(warm).filter(|warm| drain::is_enough(*warm, ended));
    let counted = Counted::of(&database, begun, warm).await?;
    bench.server.remove(database).await?;
    Ok(drain::steps(Crowd::Inserts, count) * counted.part / (ended - counted.since))
}
