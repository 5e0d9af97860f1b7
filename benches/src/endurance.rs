//! B13: many minutes under load, with autovacuum as the server runs it.

use std::time::{Duration, Instant};

use scoop::Scoop;

use crate::bench::Bench;
use crate::drain::{self, Crowd};
use crate::outcome::Outcome;
use crate::sagas::Meter;
use crate::server::Database;

/// Runs kept waiting: enough to keep the engine busy, few enough to be worked off in a second or two.
const AHEAD: u64 = 4000;

/// Messages launched at once when fewer are waiting.
const MORE: i64 = 1000;

struct Minute {
    rate: f64,
    dead: f64,
    megabytes: f64,
}

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let Some(minutes) = bench.settings.minutes else {
        bench.report.note("B13 is left out: it takes half an hour; ask for it with --long.".into());
        return Ok(());
    };
    let database = bench.server.database().await?;
    let meter = Meter::default();
    let scoop = database.engine(&bench.settings, &meter).await?.start().await?;
    let mut launched = 0;
    let mut series = vec![];
    for _ in 0..minutes {
        series.push(minute(&scoop, &database, &meter, &mut launched).await?);
    }
    meter.wait_for(launched).await?;
    drain::settled(&database).await?;
    scoop.shutdown().await?;
    scoop.pool().close().await;
    bench.server.remove(database).await?;

    if let (Some(first), Some(last)) = (series.first(), series.last()) {
        bench.report.add("B13", last.rate, Some(first.rate));
        bench.report.add("B13 dead", last.dead, Some(first.dead));
        bench.report.add("B13 size", last.megabytes, Some(first.megabytes));
    }
    let by_minute =
        |of: fn(&Minute) -> f64| series.iter().map(|m| format!("{:.0}", of(m))).collect::<Vec<_>>().join(" ");
    bench.report.note(format!("B13, minute by minute: steps/s {}.", by_minute(|minute| minute.rate)));
    bench.report.note(format!(
        "B13, dead rows of `run`: {}; MB: {}.",
        by_minute(|m| m.dead),
        by_minute(|m| m.megabytes)
    ));
    Ok(())
}

/// A minute of launching and working. The launches are part of the load.
async fn minute(scoop: &Scoop, database: &Database, meter: &Meter, launched: &mut u64) -> Outcome<Minute> {
    let (begun, before) = (Instant::now(), meter.ended());
    while begun.elapsed() < Duration::from_secs(60) {
        if launched.saturating_sub(meter.ended()) < AHEAD {
            drain::launch(scoop, Crowd::Inserts, MORE).await?;
            *launched += MORE.unsigned_abs();
        } else {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let ended = i64::try_from(meter.ended() - before)?;
    let rate = drain::steps(Crowd::Inserts, ended) / begun.elapsed().as_secs_f64();
    let dead = "SELECT n_dead_tup::float8 FROM pg_stat_user_tables WHERE relid = 'scoop.run'::regclass";
    let size = "SELECT pg_total_relation_size('scoop.run')::float8 / 1e6";
    Ok(Minute { rate, dead: database.number(dead).await?, megabytes: database.number(size).await? })
}
