//! B11: the cost of a program that has nothing to do, with a thousand sagas.

use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::os_process::{family_processor_seconds, processor_seconds};
use crate::outcome::Outcome;
use crate::server::Database;
use crate::thousand;
use crate::worker::{Kind, Worker};

/// A backend reports the statistics of its commits up to ten seconds late, so the first reading waits for those
/// of the start.
const SETTLES: Duration = Duration::from_secs(15);

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    if !thousand::IS_HERE {
        bench.report.note("B11 is left out: this program was built without the feature `thousand`.".into());
        return Ok(());
    }
    let rounds = bench.settings.rounds;
    for _ in 0..rounds {
        let database = bench.server.database().await?;
        let mut worker = Worker::spawn(Kind::Thousand, database.url(), &bench.settings).await?;
        worker.go().await?;
        tokio::time::sleep(SETTLES).await;
        let postgres = bench.server.process_id().await?;
        let before = look(bench, &database, &worker, postgres).await?;
        let begun = Instant::now();
        tokio::time::sleep(Duration::from_secs(bench.either(30, 10))).await;
        let after = look(bench, &database, &worker, postgres).await?;
        let seconds = begun.elapsed().as_secs_f64();
        worker.stop().await?;
        bench.server.remove(database).await?;
        bench.report.add("B11 queries", (after.commits - before.commits) / seconds, None);
        bench.report.add("B11 process", (after.process - before.process) / seconds * 100.0, None);
        if postgres.is_some() {
            bench.report.add("B11 Postgres", (after.postgres - before.postgres) / seconds * 100.0, None);
        }
    }
    bench.report.note(
        "B11: each query of an idle engine is a transaction. What the whole server does counts.".into(),
    );
    Ok(())
}

struct Look {
    commits: f64,
    process: f64,
    postgres: f64,
}

async fn look(bench: &Bench, database: &Database, worker: &Worker, postgres: Option<u32>) -> Outcome<Look> {
    let commits = commits(bench, database).await?;
    let process = processor_seconds(worker.process_id());
    Ok(Look { commits, process, postgres: postgres.map_or(0.0, family_processor_seconds) })
}

/// The transactions of a database until about ten seconds ago, queried in another database.
pub(crate) async fn commits(bench: &Bench, database: &Database) -> Outcome<f64> {
    let count = "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = $1";
    Ok(sqlx::query_scalar(count).bind(database.name()).fetch_one(bench.server.admin()).await?)
}
