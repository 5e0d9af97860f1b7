//! B4: one message that launches ten thousand, and the delay of a parent after its last child.

use std::time::Duration;

use scoop::Scoop;

use crate::bench::{Bench, Pace};
use crate::drain;
use crate::outcome::Outcome;
use crate::sagas::{Meter, Spread};
use crate::stats::percentile_ms;

/// The children of the large one.
pub(crate) const MANY: i64 = 10_000;

/// The children of the small ones.
const FEW: i64 = 20;

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    for _ in 0..bench.settings.rounds {
        let limit = bench.limit_pace().await?;
        let (pace, large, small) = round(bench).await?;
        bench.report.add("B4", pace.per_second, Some(limit.per_second));
        bench.add_cost("B4", pace, limit);
        bench.report.add("B4 resume", percentile_ms(&small, 99), None);
        bench.report.add("B4 resume p50", percentile_ms(&small, 50), None);
        bench.report.add("B4 resume large", percentile_ms(&large, 50), None);
    }
    Ok(())
}

/// Children per second of a large fan-out, the delay of its parent, and the delays of small ones.
async fn round(bench: &Bench) -> Outcome<(Pace, Vec<Duration>, Vec<Duration>)> {
    let database = bench.server.database().await?;
    let meter = Meter::default();
    let scoop = database.engine(&bench.settings, &meter).await?.start().await?;
    warm_up(&scoop).await?;
    meter.take_resumed();

    let (begun, before) = (database.now().await?, bench.processor_seconds().await?);
    scoop.launch(Spread { n: 0, children: MANY }).await?;
    meter.wait_for(2).await?;
    let seconds = drain::settled(&database).await? - begun;
    let pace = Pace { per_second: 10_000.0 / seconds, micros: bench.micros_since(before, 10_000.0).await? };
    let large = meter.take_resumed();

    for n in 1..=bench.either(200, 40) {
        scoop.launch(Spread { n, children: FEW }).await?.wait().await?;
    }
    let small = meter.take_resumed();
    scoop.shutdown().await?;
    scoop.pool().close().await;
    bench.server.remove(database).await?;
    Ok((pace, large, small))
}

/// Has the engine open its connections, and the server plan its statements in each.
pub(crate) async fn warm_up(scoop: &Scoop) -> Outcome<()> {
    scoop.launch(Spread { n: -1, children: MANY / 10 }).await?.wait().await?;
    Ok(())
}
