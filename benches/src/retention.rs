//! B23: deletion of finished hierarchies beside live load, the size of the tables over a simulated month, and the deletion of a
//! large hierarchy.

use std::time::{Duration, Instant};

use scoop::operate::OperateExt as _;
use scoop::retention::Retention;

use crate::bench::Bench;
use crate::drain::{self, Crowd};
use crate::growth;
use crate::outcome::Outcome;
use crate::sagas::Meter;

/// The finished hierarchies before a round: all are due.
const FINISHED: u32 = 120_000;

/// They have become due in the last minutes, so that the pace of the deletion is that of every day.
const DUE_LATELY: [(&str, &str); 2] = [("bench.spacing", "2 ms"), ("bench.age", "1 hour")];

/// A simulated day, of 24 hours.
const HOURS: u32 = 24;

/// The real time of a simulated hour.
const HOUR: Duration = Duration::from_millis(333);

/// Hierarchies launched in each of them.
const LAUNCHES: i64 = 20;

/// By then, as much is deleted as is launched, and autovacuum, which comes once a minute, has come twice.
const STEADY_DAY: usize = 20;

/// Times to keep count in simulated hours.
const SIMULATED_HOURS: &str = "
    CREATE TABLE public.hour (at timestamptz PRIMARY KEY DEFAULT clock_timestamp());
    CREATE OR REPLACE FUNCTION scoop.kept_since(seconds float8) RETURNS timestamptz LANGUAGE sql VOLATILE
    RETURN coalesce(
        (SELECT h.at FROM public.hour h ORDER BY h.at DESC OFFSET (least(seconds, 1e9) / 3600)::bigint LIMIT 1),
        '-infinity')";

const SIZE: &str = "SELECT sum(pg_total_relation_size(c.oid))::float8 / 1e6 FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'scoop' AND c.relkind = 'r'";

const WAL: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8 / 1e6";

const DEAD: &str = "SELECT sum(n_dead_tup)::float8 FROM pg_stat_user_tables WHERE schemaname = 'scoop'";

const MESSAGES: &str = "SELECT count(*)::float8 FROM scoop.message";

/// The tables at the end of a simulated day.
struct Day {
    messages: f64,
    megabytes: f64,
    dead: f64,
}

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    beside_load(bench).await?;
    month(bench).await?;
    large(bench).await
}

/// The deletion of one hierarchy with many runs, which is one transaction.
async fn large(bench: &mut Bench) -> Outcome<()> {
    for runs in [1_000, 10_000, i64::from(bench.either(100_000, 20_000))] {
        let database = bench.server.database().await?;
        let scoop = database.engine(&bench.settings, &Meter::default()).await?.start().await?;
        growth::copy(&database, runs, &[], include_str!("../sql/large_hierarchy.sql")).await?;
        database.execute("VACUUM ANALYZE").await?;
        database.execute("CHECKPOINT").await?;
        let wal = database.number(WAL).await?;
        let begun = Instant::now();
        let pruned = scoop.operate().retention().prune().older_than(Duration::from_secs(3_600)).await?;
        let took = begun.elapsed().as_secs_f64();
        let wal = database.number(WAL).await? - wal;
        assert_eq!(pruned.events, 5 * runs.unsigned_abs(), "all of it is deleted");
        bench.report.note(format!(
            "B23: a hierarchy of {runs} runs is deleted in {took:.2} s, with {wal:.0} MB of WAL."
        ));
        scoop.shutdown().await?;
        scoop.pool().close().await;
        bench.server.remove(database).await?;
    }
    Ok(())
}

/// B1 with and without the deletion, in turns on one database.
async fn beside_load(bench: &mut Bench) -> Outcome<()> {
    let finished = bench.either(FINISHED, 30_000);
    let database = growth::with_history_of(bench, finished.into(), &DUE_LATELY).await?;
    let deletes = Retention::default().committed(Duration::from_secs(3_600)).every(Duration::from_millis(10));
    let mut count = 1000;
    let mut deleted = 0.0;
    for round in 0..bench.settings.rounds {
        let in_turns =
            if round % 2 == 0 { [Retention::forever(), deletes] } else { [deletes, Retention::forever()] };
        let (mut with, mut without) = (0.0, 0.0);
        for keep in in_turns {
            drain::launch(&database.client().await?, Crowd::Inserts, count).await?;
            let before = database.number(MESSAGES).await?;
            let pace = drain::drain_with(bench, &database, Crowd::Inserts, count, |it, _| it.retention(keep))
                .await?;
            if keep == deletes {
                with = pace.per_second;
                deleted += before - database.number(MESSAGES).await?;
            } else {
                without = pace.per_second;
            }
        }
        bench.report.add("B23", with, Some(without));
        count = drain::for_a_round(bench, Crowd::Inserts, without);
    }
    bench.report.note(format!("B23: {deleted:.0} of {finished} hierarchies were deleted meanwhile."));
    bench.server.remove(database).await
}

/// The size of the tables, with the default times, while a service works at a constant rate.
async fn month(bench: &mut Bench) -> Outcome<()> {
    let database = bench.server.database().await?;
    database.execute(SIMULATED_HOURS).await?;
    let meter = Meter::default();
    let keep = Retention::default().every(HOUR / 4);
    let scoop = database.engine(&bench.settings, &meter).await?.retention(keep).start().await?;
    let mut days = vec![];
    let begun = Instant::now();
    for day in 0..bench.either(30, 22) {
        for hour in 0..HOURS {
            database.execute("INSERT INTO public.hour DEFAULT VALUES").await?;
            drain::launch(&scoop, Crowd::Inserts, LAUNCHES).await?;
            let next = HOUR * (day * HOURS + hour + 1);
            tokio::time::sleep(next.saturating_sub(begun.elapsed())).await;
        }
        days.push(Day {
            messages: database.number(MESSAGES).await?,
            megabytes: database.number(SIZE).await?,
            dead: database.number(DEAD).await?,
        });
    }
    let took = begun.elapsed();
    scoop.shutdown().await?;
    scoop.pool().close().await;
    bench.server.remove(database).await?;

    if let (Some(steady), Some(last)) = (days.get(STEADY_DAY), days.last()) {
        bench.report.add("B23 size", last.megabytes, Some(steady.megabytes));
        bench.report.add("B23 dead", last.dead, Some(steady.dead));
        bench.report.add("B23 kept", last.messages, Some(f64::from(7 * HOURS) * LAUNCHES as f64));
    }
    let by_day =
        |of: fn(&Day) -> f64| days.iter().map(|d| format!("{:.0}", of(d))).collect::<Vec<_>>().join(" ");
    bench.report.note(format!(
        "B23: {} days in {:.0} s, {LAUNCHES} launches an hour; hierarchies {}; MB {}; dead rows {}.",
        days.len(),
        took.as_secs_f64(),
        by_day(|day| day.messages),
        by_day(|day| day.megabytes),
        by_day(|day| day.dead),
    ));
    Ok(())
}
