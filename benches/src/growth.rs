//! B8: the effect of a long history on speed.

use sqlx::Connection;

use crate::bench::Bench;
use crate::drain::{self, Crowd};
use crate::latency;
use crate::outcome::Outcome;
use crate::sagas::{Insert, Meter};
use crate::server::Database;
use crate::stats::percentile_ms;

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let old = with_history(bench, bench.settings.finished).await?;
    let mut count = drain::for_a_round(
        bench,
        Crowd::Inserts,
        drain::fresh(bench, Crowd::Inserts, 1000).await?.per_second,
    );
    for round in 0..bench.settings.rounds {
        let empty = bench.server.database().await?;
        // Alternating, so that neither is always measured after the other.
        let in_turns = if round % 2 == 0 { [&empty, &old] } else { [&old, &empty] };
        let (mut rates, mut p50s) = (vec![], vec![]);
        for database in in_turns {
            rates.push(launched_and_drained(bench, database, count).await?);
        }
        for database in in_turns {
            p50s.push(percentile_ms(&latency::same_process(bench, database).await?, 50));
        }
        let nth = |database: usize| (round + database) % 2;
        let rate_empty = rates[nth(0)];
        bench.report.add("B8", rates[nth(1)], Some(rate_empty));
        bench.report.add("B8 latency", p50s[nth(1)], Some(p50s[nth(0)]));
        bench.server.remove(empty).await?;
        count = drain::for_a_round(bench, Crowd::Inserts, rate_empty);
    }
    let size = "SELECT sum(pg_total_relation_size(c.oid))::float8 / 1e6 FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'scoop' AND c.relkind = 'r'";
    let (finished, size) = (bench.settings.finished, old.number(size).await?);
    bench
        .report
        .note(format!("B8: {finished} finished runs and what was measured, {size:.0} MB of Scoop's tables."));
    bench.server.remove(old).await
}

async fn launched_and_drained(bench: &Bench, database: &Database, count: i64) -> Outcome<f64> {
    drain::launch(&database.client().await?, Crowd::Inserts, count).await?;
    Ok(drain::drain(bench, database, Crowd::Inserts, count).await?.per_second)
}

/// A database with so many copies of the rows that a real saga left, one for each 2.5 seconds before now.
pub(crate) async fn with_history(bench: &Bench, copies: i64) -> Outcome<Database> {
    with_history_of(bench, copies, &[]).await
}

/// The same, with settings of the script: the times between the copies, and of the newest one.
pub(crate) async fn with_history_of(
    bench: &Bench,
    copies: i64,
    settings: &[(&str, &str)],
) -> Outcome<Database> {
    let database = bench.server.database().await?;
    let scoop = database.engine(&bench.settings, &Meter::default()).await?.start().await?;
    scoop.launch(Insert { n: 0 }).await?.wait().await?;
    scoop.shutdown().await?;
    scoop.pool().close().await;
    copy(&database, copies, settings, include_str!("../sql/history.sql")).await?;
    database.execute("VACUUM ANALYZE").await?;
    database.execute("CHECKPOINT").await?;
    Ok(database)
}

/// Runs a script that copies rows as often as `bench.copies` says.
pub(crate) async fn copy(
    database: &Database,
    copies: i64,
    settings: &[(&str, &str)],
    script: &'static str,
) -> Outcome<()> {
    let mut connection = database.pool.acquire().await?.detach();
    let copies = copies.to_string();
    for (name, value) in settings.iter().chain(&[("bench.copies", &*copies)]) {
        let setting = sqlx::query("SELECT set_config($1, $2, false)").bind(name).bind(value);
        setting.execute(&mut connection).await?;
    }
    sqlx::raw_sql(script).execute(&mut connection).await?;
    Ok(connection.close().await?)
}
