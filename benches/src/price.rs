//! B14: the cost of a saga for the server: commits, and bytes of its log.

use std::time::Duration;

use crate::bench::Bench;
use crate::drain::{self, Crowd};
use crate::idle::commits;
use crate::outcome::Outcome;
use crate::server::Database;

/// A backend reports the statistics of its commits up to ten seconds late, or when it ends.
const SETTLES: Duration = Duration::from_secs(11);

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let count = bench.either(3000, 1000);
    for _ in 0..bench.settings.rounds {
        let database = bench.server.database().await?;
        // After a checkpoint the log gets each page as a whole, once. A first drain writes all of these.
        launch_and_drain(bench, &database, count).await?;
        tokio::time::sleep(SETTLES).await;
        let (commits_before, wal_before) = (commits(bench, &database).await?, wal(&database).await?);
        let wal_launched = launch_and_drain(bench, &database, count).await?;
        let wal_after = wal(&database).await?;
        tokio::time::sleep(SETTLES).await;
        let commits_after = commits(bench, &database).await?;
        bench.server.remove(database).await?;

        let sagas = drain::steps(Crowd::Inserts, count) / 3.0;
        bench.report.add("B14 commits", (commits_after - commits_before) / sagas, None);
        bench.report.add("B14 WAL", (wal_after - wal_before) / sagas / 1000.0, None);
        bench.report.add("B14 WAL launch", (wal_launched - wal_before) / sagas / 1000.0, None);
    }
    bench.report.note(format!(
        "B14: {count} sagas, launched a thousand at once; the start of the engine counts, too."
    ));
    Ok(())
}

/// The position of the log between the launch and the drain.
async fn launch_and_drain(bench: &Bench, database: &Database, count: i64) -> Outcome<f64> {
    drain::launch(&database.client().await?, Crowd::Inserts, count).await?;
    let launched = wal(database).await?;
    drain::drain(bench, database, Crowd::Inserts, count).await?;
    Ok(launched)
}

/// The number of bytes written to the log.
async fn wal(database: &Database) -> Outcome<f64> {
    database.number("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").await
}
