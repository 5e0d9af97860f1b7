//! B25: the price of limits, pauses and priorities. B1 by a saga with a limit that is never reached or always, by one with
//! limits by key that are always reached, by one with a rate that is never reached, by key or not, with a third of the runs at
//! each priority, and beside a paused handler with pending runs. And launches to a queue with a limit that is never reached.

use scoop::Builder;
use scoop::pauses::PauseTarget;
use scoop::prelude::*;

use crate::bench::Bench;
use crate::drain::{self, Crowd};
use crate::launches;
use crate::outcome::Outcome;
use crate::sagas::{Alone, Meter, insert};
use crate::server::Database;

/// Runs of a first, short drain, which finds out how many a round needs.
const PROBE: i64 = 600;

/// The keys of the runs with limits by key.
const KEYS: i64 = 100;

/// The pending runs of the paused handler.
const PAUSED: i64 = 5_000;

macro_rules! inserts {
    ($message:ident, $saga:ident, $topic:literal, ($($limit:tt)*)) => {
        /// The message of the saga below.
        #[derive(Message, Serialize, Deserialize)]
        #[message(topic = $topic)]
        pub(crate) struct $message {
            pub(crate) n: i64,
        }

        /// Three steps with one INSERT each, as those of B1.
        struct $saga(Meter);

        #[saga($($limit)*)]
        #[subscribes($message)]
        impl $saga {
            #[step]
            async fn first(&self, scope: &mut Scope<'_>, message: &$message) -> Result<()> {
                insert(scope, message.n, 1).await
            }

            #[step]
            async fn second(&self, scope: &mut Scope<'_>, message: &$message) -> Result<()> {
                insert(scope, message.n, 2).await
            }

            #[step]
            async fn third(&self, scope: &mut Scope<'_>, message: &$message) -> Result<()> {
                insert(scope, message.n, 3).await?;
                self.0.count();
                Ok(())
            }

            #[allow(dead_code, reason = "not every limit is by a key")]
            fn key(&self, message: &$message) -> String {
                (message.n % KEYS).to_string()
            }
        }
    };
}

inserts!(Limited, LimitedInserts, "bench.limited", (concurrency = 100_000));
inserts!(Narrow, NarrowInserts, "bench.narrow", (concurrency = 16));
inserts!(LimitedByKey, InsertsByKey, "bench.limited-by-key", (concurrency(4, by = key)));
inserts!(Rated, InsertsAtRate, "bench.rated", (rate("1000000/s")));
inserts!(RatedByKey, InsertsAtRateByKey, "bench.rated-by-key", (rate("1000000/s", by = key)));
inserts!(LimitedAlone, LoneWithLimit, "bench.limited-alone", (concurrency = 100_000));

/// The message of [`LimitedFan`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.limited-fan")]
pub(crate) struct LimitedSpread {
    pub(crate) children: i64,
}

/// Launches many children with limits by key at once, and goes on when they have ended.
struct LimitedFan(Meter);

#[saga]
#[subscribes(LimitedSpread)]
impl LimitedFan {
    #[step]
    async fn spread(&self, scope: &mut Scope<'_>, message: &LimitedSpread) -> Result<()> {
        for n in 0..message.children {
            scope.launch(LimitedByKey { n }).await?;
        }
        Ok(())
    }

    #[step]
    async fn gather(&self, _: &mut Scope<'_>, _: &LimitedSpread) -> Result<()> {
        self.0.count();
        Ok(())
    }
}

pub(crate) async fn measure(bench: &mut Bench) -> Outcome<()> {
    let mut count = drain::for_a_round(
        bench,
        Crowd::Inserts,
        drain::fresh(bench, Crowd::Inserts, PROBE).await?.per_second,
    );
    const WAYS: [(&str, Crowd, bool); 7] = [
        ("B25", Crowd::Limited, false),
        ("B25 reached", Crowd::Narrow, false),
        ("B25 by key", Crowd::LimitedByKey, false),
        ("B25 rate", Crowd::Rated, false),
        ("B25 rate by key", Crowd::RatedByKey, false),
        ("B25 priority", Crowd::Prioritized, false),
        ("B25 pause", Crowd::Inserts, true),
    ];
    for _ in 0..bench.settings.rounds {
        let without = fresh(bench, Crowd::Inserts, count, false).await?;
        for (key, crowd, is_paused) in WAYS {
            let rate = fresh(bench, crowd, count, is_paused).await?;
            bench.report.add(key, rate, Some(without));
        }
        let (queue, without_queue) = launches::price_of_a_queue(bench).await?;
        bench.report.add("B25 queue", queue, Some(without_queue));
        count = drain::for_a_round(bench, Crowd::Inserts, without);
    }
    bench
        .report
        .note(format!("B25: {KEYS} keys, four runs of each at once; {PAUSED} runs of the paused handler."));
    Ok(())
}

/// Adds the saga of a crowd with a limit.
pub(crate) fn with_saga(crowd: Crowd, builder: Builder, meter: &Meter) -> Builder {
    let meter = meter.clone();
    match crowd {
        Crowd::Limited => builder.only::<LimitedInserts>().provide(LimitedInserts(meter)),
        Crowd::Narrow => builder.only::<NarrowInserts>().provide(NarrowInserts(meter)),
        Crowd::LimitedByKey => builder.only::<InsertsByKey>().provide(InsertsByKey(meter)),
        Crowd::Rated => builder.only::<InsertsAtRate>().provide(InsertsAtRate(meter)),
        Crowd::RatedByKey => builder.only::<InsertsAtRateByKey>().provide(InsertsAtRateByKey(meter)),
        _ => builder,
    }
}

/// Adds a lone saga with a limit that is never reached. The meter does not count it.
pub(crate) fn with_lone(builder: Builder) -> Builder {
    builder.only::<LoneWithLimit>().provide(LoneWithLimit(Meter::default()))
}

/// Adds a fan-out of children with limits by key. The meter counts only the parents.
pub(crate) fn with_fan(builder: Builder, meter: &Meter) -> Builder {
    let builder = with_saga(Crowd::LimitedByKey, builder, &Meter::default());
    builder.only::<LimitedFan>().provide(LimitedFan(meter.clone()))
}

/// Registers the saga of a crowd: a message has the handlers that are registered when it is launched.
pub(crate) async fn register(bench: &Bench, database: &Database, crowd: Crowd) -> Outcome<()> {
    let meter = Meter::default();
    let builder = database.engine(&bench.settings, &meter).await?;
    let scoop = with_saga(crowd, builder, &meter).start().await?;
    scoop.shutdown().await?;
    scoop.pool().close().await;
    Ok(())
}

/// Steps per second of so many sagas, in a fresh database, perhaps beside a pause.
async fn fresh(bench: &Bench, crowd: Crowd, count: i64, is_paused: bool) -> Outcome<f64> {
    let database = bench.server.database().await?;
    let client = database.client().await?;
    register(bench, &database, crowd).await?;
    if is_paused {
        client.operate().pauses().pause(PauseTarget::Handler("lone".into())).await?;
        client.launch_all((0..PAUSED).map(|n| Alone { n })).await?;
    }
    drain::launch(&client, crowd, count).await?;
    let with_saga = |builder: Builder, meter: &Meter| with_saga(crowd, builder, meter);
    let rate = drain::drain_with(bench, &database, crowd, count, with_saga).await?.per_second;
    bench.server.remove(database).await?;
    Ok(rate)
}
