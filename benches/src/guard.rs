//! The guard of the hot path: what a saga costs the server must not grow unnoticed. The test `benches/tests/guard.rs` runs it
//! with each change, in a debug build.
//!
//! It starts a server of its own, on which a worker works off B1, B3 and B5, and a loop does b_sep at the same time. It counts the
//! calls of statements, the buffers that they look at, and the WAL that they write for each saga; and their processor time for each step,
//! over that of the loop for a transaction. A busy machine slows down both sides, and moves the counts only as far as batches
//! are larger or smaller. So a load is measured until the best of each figure is within its bound: what the code costs is in all
//! slices.
//!
//! The bounds are 10 % above what was reached: for processor time above the median of five runs with nothing beside them, each
//! the best of three slices. To lower a bound, run `cargo run -p scoop-bench -- guard`, which prints the figures, and write the
//! new one into `LOADS`. To raise one, say in the commit what the saga gets for it, and first measure with `scoop-bench versus`
//! that nothing cheaper will do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::{Connection as _, PgConnection, Row as _};

use crate::args::Settings;
use crate::os_process::processor_seconds;
use crate::outcome::Outcome;
use crate::server::{Database, Server};
use crate::versus::{Contestant, Load, load};

/// The slices of each load at most.
const SLICES_MAX: usize = 12;

/// The concurrent loops of b_sep.
const LOOPS: u32 = 4;

/// The figures for each saga, apart from the processor time.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// Processor time of a step, over that of a transaction of b_sep.
    processor: f64,
    calls: f64,
    buffers: f64,
    wal_bytes: f64,
}

/// The measures, with the sagas of a slice and the bounds.
const LOADS: [(&str, i64, Figures); 3] = [
    ("B1", 500, Figures { processor: 1.8, calls: 39.7, buffers: 101.0, wal_bytes: 5_740.0 }),
    ("B3", 100, Figures { processor: 3.0, calls: 108.0, buffers: 735.0, wal_bytes: 36_000.0 }),
    ("B5", 60, Figures { processor: 3.3, calls: 212.0, buffers: 1_843.0, wal_bytes: 102_300.0 }),
];

/// Measures, prints the figures, and fails if one is above its bound.
pub(crate) async fn run() -> Outcome<()> {
    // Whole pages would be in the log as often as there are checkpoints.
    let server = Server::private_with(&[
        ("shared_preload_libraries", "pg_stat_statements"),
        ("pg_stat_statements.track_utility", "on"),
        ("full_page_writes", "off"),
        ("fsync", "off"),
        ("shared_buffers", "256MB"),
        ("max_connections", "100"),
        ("autovacuum", "off"),
    ])
    .await?;
    sqlx::raw_sql("CREATE EXTENSION pg_stat_statements").execute(server.admin()).await?;
    let limit = server.empty_database().await?;
    limit.execute(include_str!("../sql/limit_setup.sql")).await?;
    let mut above = vec![];
    println!("| id | | processor | calls | buffers | WAL |\n| --- | --- | --- | --- | --- | --- |");
    for (key, sagas, bounds) in LOADS {
        let load = load(key).ok_or("no such measure")?;
        let contestant = Contestant::start(&server, &std::env::current_exe()?, &Settings::default()).await?;
        contestant.work_off(&server, load, sagas).await?;
        let mut best: Option<Figures> = None;
        for _ in 0..SLICES_MAX {
            let slice = slice(&server, &limit, &contestant, load, sagas).await?;
            let least = best.map_or(slice, |best| best.least(slice));
            best = Some(least);
            if least.above(bounds).is_empty() {
                break;
            }
        }
        contestant.stop(&server).await?;
        let best = best.ok_or("there are no slices")?;
        for (what, figures) in [("bound", bounds), ("figure", best)] {
            let Figures { processor, calls, buffers, wal_bytes } = figures;
            println!("| {key} | {what} | {processor:.2} | {calls:.1} | {buffers:.0} | {wal_bytes:.0} |");
        }
        above.extend(best.above(bounds).into_iter().map(|what| format!("{what} of {key}")));
    }
    server.remove(limit).await?;
    server.stop().await?;
    if above.is_empty() { Ok(()) } else { Err(format!("above the bound: {}", above.join(", ")).into()) }
}

impl Figures {
    fn least(self, other: Self) -> Self {
        Self {
            processor: self.processor.min(other.processor),
            calls: self.calls.min(other.calls),
            buffers: self.buffers.min(other.buffers),
            wal_bytes: self.wal_bytes.min(other.wal_bytes),
        }
    }

    /// The names of those above the bounds.
    fn above(self, bounds: Self) -> Vec<&'static str> {
        let all = [
            ("processor time", self.processor, bounds.processor),
            ("calls", self.calls, bounds.calls),
            ("buffers", self.buffers, bounds.buffers),
            ("WAL", self.wal_bytes, bounds.wal_bytes),
        ];
        all.into_iter().filter(|(_, figure, bound)| figure > bound).map(|(what, ..)| what).collect()
    }
}

/// Works off so many sagas, with the loop beside it.
async fn slice(
    server: &Server,
    limit: &Database,
    contestant: &Contestant,
    load: Load,
    sagas: i64,
) -> Outcome<Figures> {
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let mut loops = vec![];
    for _ in 0..LOOPS {
        let mut session = PgConnection::connect(limit.url()).await?;
        b_sep(&mut session).await?;
        let process: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut session).await?;
        let (stop, done) = (stop.clone(), done.clone());
        loops.push((
            process,
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    b_sep(&mut session).await?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Outcome::Ok(session)
            }),
        ));
    }
    let processor = || {
        loops.iter().filter_map(|(pid, _)| Some(processor_seconds(u32::try_from(*pid).ok()?))).sum::<f64>()
    };
    let (begun, transactions) = (processor(), done.load(Ordering::Relaxed));
    sqlx::query("SELECT pg_stat_statements_reset()").execute(server.admin()).await?;
    let cost = contestant.work_off(server, load, sagas).await?;
    let (ended, transactions) = (processor(), done.load(Ordering::Relaxed) - transactions);
    stop.store(true, Ordering::Relaxed);
    for (_, one) in loops {
        tokio::time::timeout(Duration::from_secs(30), one).await???.close().await?;
    }
    let statements =
        sqlx::query(STATEMENTS).bind(contestant.database.name()).fetch_one(server.admin()).await?;
    // All of them are far below the precision of a float.
    let each = |column: &str| Outcome::Ok(statements.try_get::<i64, _>(column)? as f64 / sagas as f64);
    Ok(Figures {
        processor: cost.server / ((ended - begun) * 1_000_000.0 / transactions as f64),
        calls: each("calls")?,
        buffers: each("buffers")?,
        wal_bytes: each("wal_bytes")?,
    })
}

/// The statements of a database, apart from those of this program.
const STATEMENTS: &str = "
    SELECT sum(calls)::bigint AS calls, sum(shared_blks_hit + shared_blks_read)::bigint AS buffers,
           sum(wal_bytes)::bigint AS wal_bytes
    FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
    WHERE d.datname = $1 AND query !~ 'versus|bench[.]%'";

/// One transaction of `b_sep.sql`.
async fn b_sep(session: &mut PgConnection) -> Outcome<()> {
    let mut transaction = session.begin().await?;
    let run: i64 = sqlx::query_scalar(
        "SELECT id FROM work WHERE is_ready ORDER BY ready_at LIMIT 1 FOR UPDATE SKIP LOCKED",
    )
    .fetch_one(&mut *transaction)
    .await?;
    let entry = sqlx::query("INSERT INTO entry (saga, step) VALUES ($1, 1)").bind(run);
    entry.execute(&mut *transaction).await?;
    sqlx::query(
        "INSERT INTO history (id, message, fact, handler, worker, step, ancestors)
         VALUES (gen_random_uuid(), gen_random_uuid(), 'done', 'handler', 'worker-1', 'step-1',
                 ARRAY[gen_random_uuid(), gen_random_uuid()])",
    )
    .execute(&mut *transaction)
    .await?;
    let update =
        sqlx::query("UPDATE work SET step = step + 1, ready_at = clock_timestamp() WHERE id = $1").bind(run);
    update.execute(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}
