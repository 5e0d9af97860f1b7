//! B17: the rate at which a long loop is rolled back, beside its forward rate.

use scoop::Scoop;
use sqlx::Row;

use crate::bench::Bench;
use crate::outcome::Outcome;
use crate::sagas::{Circle, Meter};
use crate::server::Database;

/// A loop whose iterations launch a child each, or none.
struct Kind {
    key: &'static str,
    launches: bool,
    /// Iterations of the long loop. The short one has a tenth of them.
    iterations: u32,
}

/// Iterations a second of one loop.
struct Rates {
    forward: f64,
    back: f64,
}

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let kinds = [
        Kind { key: "B17", launches: true, iterations: bench.either(10_000, 1_000) },
        Kind { key: "B17 plain", launches: false, iterations: bench.either(100_000, 10_000) },
    ];
    for _ in 0..bench.settings.rounds {
        for kind in &kinds {
            let short = round(bench, kind, kind.iterations / 10).await?;
            let long = round(bench, kind, kind.iterations).await?;
            bench.report.add(kind.key, long.back, Some(long.forward));
            bench.report.add(&format!("{} length", kind.key), long.back, Some(short.back));
        }
    }
    let [launching, plain] = kinds.map(|kind| kind.iterations);
    bench.report.note(format!(
        "B17: loops of {} and {launching} iterations with a child each, and of {} and {plain} without.",
        launching / 10,
        plain / 10,
    ));
    Ok(())
}

/// A loop of so many iterations in a fresh database, once the engine is warm.
async fn round(bench: &Bench, kind: &Kind, iterations: u32) -> Outcome<Rates> {
    let database = bench.server.database().await?;
    let scoop = database.engine(&bench.settings, &Meter::default()).await?.start().await?;
    for iterations in [100, iterations] {
        circle(&scoop, kind, iterations).await?;
    }
    let rates = rates(&database, iterations).await?;
    scoop.shutdown().await?;
    scoop.pool().close().await;
    bench.server.remove(database).await?;
    Ok(rates)
}

/// Launches a loop, and waits until it is rolled back.
async fn circle(scoop: &Scoop, kind: &Kind, iterations: u32) -> Outcome<()> {
    match scoop.launch(Circle { iterations, launches: kind.launches }).await?.wait().await? {
        scoop::Outcome::RolledBack(_) => Ok(()),
        other => Err(format!("the loop was to be rolled back, but {other:?}").into()),
    }
}

/// The rates of the newest loop, by the times of its events.
async fn rates(database: &Database, iterations: u32) -> Outcome<Rates> {
    let times = "SELECT extract(epoch FROM turned.created_at - seen.created_at)::float8 AS forward,
               extract(epoch FROM undone.created_at - turned.created_at)::float8 AS back
        FROM scoop.message_event undone
        JOIN scoop.message_event turned USING (message_id, coroutine_name)
        JOIN scoop.message_event seen USING (message_id, coroutine_name)
        WHERE undone.type = 'ROLLED_BACK' AND cardinality(undone.cooperation_lineage) = 2
          AND turned.type = 'ROLLING_BACK' AND seen.type = 'SEEN'
        ORDER BY undone.created_at DESC
        LIMIT 1";
    let times = sqlx::query(times).fetch_one(&database.pool).await?;
    let rate = |seconds: f64| f64::from(iterations) / seconds;
    Ok(Rates { forward: rate(times.try_get("forward")?), back: rate(times.try_get("back")?) })
}
