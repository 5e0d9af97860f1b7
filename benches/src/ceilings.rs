//! Ceilings: rates of pgbench scripts that write only the rows of the protocol, and ours, into the engine's own
//! tables.
//!
//! They use as few round trips as possible. Nothing is waited for, looked up or checked. So no engine on these
//! tables can be faster, independent of its language.

use crate::baseline::CLIENTS;
use crate::bench::Bench;
use crate::outcome::Outcome;
use crate::sagas;

/// One of them.
struct Ceiling {
    key: &'static str,
    script: &'static str,
    /// How many units of the measure one run of the script counts as.
    counts: f64,
    /// The approximate number of runs by each client in a second.
    each: i64,
    /// Whether each run of the script needs a ready run.
    ready: bool,
}

const CEILINGS: [Ceiling; 6] = [
    Ceiling {
        key: "ceiling B1",
        script: include_str!("../sql/ceiling_b1.sql"),
        counts: 3.0,
        each: 120,
        ready: true,
    },
    Ceiling {
        key: "ceiling B3",
        script: include_str!("../sql/ceiling_b3.sql"),
        counts: sagas::TREE_STEPS,
        each: 35,
        ready: true,
    },
    Ceiling {
        key: "ceiling B4",
        script: include_str!("../sql/ceiling_b4.sql"),
        counts: 1.0,
        each: 350,
        ready: false,
    },
    Ceiling {
        key: "ceiling B5",
        script: include_str!("../sql/ceiling_b5.sql"),
        counts: sagas::TREE_ROLLBACK_STEPS,
        each: 20,
        ready: true,
    },
    Ceiling {
        key: "ceiling B7 within",
        script: include_str!("../sql/ceiling_b7_within.sql"),
        counts: 1.0,
        each: 350,
        ready: false,
    },
    Ceiling {
        key: "ceiling B7 many",
        script: include_str!("../sql/ceiling_b7_many.sql"),
        counts: 1000.0,
        each: 4,
        ready: false,
    },
];

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    for _ in 0..bench.settings.rounds {
        for ceiling in &CEILINGS {
            let limit = bench.limit().await?;
            let rate = round(bench, ceiling).await?;
            bench.report.add(ceiling.key, rate, Some(limit));
        }
    }
    Ok(())
}

async fn round(bench: &Bench, ceiling: &Ceiling) -> Outcome<f64> {
    let each = ceiling.each * i64::from(bench.settings.seconds);
    let database = bench.server.database().await?;
    database.execute(include_str!("../sql/ceiling_setup.sql")).await?;
    if ceiling.ready {
        database.execute(&format!("SELECT make_ready({CLIENTS}, {each})")).await?;
    }
    database.execute("ANALYZE").await?;
    let rate = bench.limit.rate_in(&database, ceiling.script, each).await?;
    bench.server.remove(database).await?;
    Ok(rate * ceiling.counts)
}
