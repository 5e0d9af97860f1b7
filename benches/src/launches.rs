//! B7: the rate of launches without any engine; and for B25, with a limit of the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use scoop::Scoop;
use sqlx::{Connection, PgConnection};

use crate::baseline::{CLIENTS, WARM_UP};
use crate::bench::Bench;
use crate::outcome::Outcome;
use crate::sagas::Insert;

/// Messages in one launch.
const MANY: i64 = 1000;

/// How a message is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// In a transaction of its own.
    Single,
    /// In a transaction of the caller, which also inserts a row.
    Within,
    /// With many others.
    Many,
}

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    for _ in 0..bench.settings.rounds {
        let limit = bench.limit().await?;
        for (key, how) in [("B7 single", How::Single), ("B7 within", How::Within), ("B7 many", How::Many)] {
            let rate = round(bench, how, "").await?;
            bench.report.add(key, rate, Some(limit));
        }
    }
    Ok(())
}

/// Launches per second with a limit of the queue that is never reached, and without.
pub(crate) async fn price_of_a_queue(bench: &Bench) -> Outcome<(f64, f64)> {
    const LIMIT: &str = "
        INSERT INTO scoop.run_limit (saga, handlers, queue)
        SELECT DISTINCT h.handler, ARRAY[h.handler::text], 100000 FROM scoop.handler h WHERE h.retired_at IS NULL";
    let without = round(bench, How::Single, "").await?;
    Ok((round(bench, How::Single, LIMIT).await?, without))
}

/// Launches per second by as many callers as the limit has clients, after these statements.
async fn round(bench: &Bench, how: How, before: &'static str) -> Outcome<f64> {
    let database = bench.server.database().await?;
    database.execute(before).await?;
    let client = database.client().await?;
    let launched = Arc::new(AtomicU64::new(0));
    let warm = Instant::now() + WARM_UP;
    let until = warm + bench.seconds() / 2;
    let callers: Vec<_> =
        (0..CLIENTS).map(|_| tokio::spawn(call(client.clone(), how, until, launched.clone()))).collect();
    tokio::time::sleep_until(warm.into()).await;
    let (begun, before) = (Instant::now(), launched.load(Ordering::Relaxed));
    for caller in callers {
        caller.await??;
    }
    let (seconds, counted) = (begun.elapsed().as_secs_f64(), launched.load(Ordering::Relaxed) - before);
    client.pool().close().await;
    drop(client);
    bench.server.remove(database).await?;
    Ok(counted as f64 / seconds)
}

async fn call(client: Scoop, how: How, until: Instant, launched: Arc<AtomicU64>) -> Outcome<()> {
    // Kept open, as pgbench keeps its connections: a pool tests each returned connection with a round trip.
    let mut own = match how {
        How::Within => Some(client.pool().acquire().await?),
        How::Single | How::Many => None,
    };
    while Instant::now() < until {
        match (how, &mut own) {
            (How::Many, _) => drop(client.launch_all((0..MANY).map(|n| Insert { n })).await?),
            (_, Some(connection)) => within(&client, connection).await?,
            (_, None) => drop(client.launch(Insert { n: 0 }).await?),
        }
        let more = if how == How::Many { MANY.unsigned_abs() } else { 1 };
        launched.fetch_add(more, Ordering::Relaxed);
    }
    Ok(())
}

async fn within(client: &Scoop, connection: &mut PgConnection) -> Outcome<()> {
    let mut tx = connection.begin().await?;
    sqlx::query("INSERT INTO public.entry (saga, step) VALUES (1, 0)").execute(&mut *tx).await?;
    client.launch(Insert { n: 0 }).in_transaction(&mut tx).await?;
    Ok(tx.commit().await?)
}
