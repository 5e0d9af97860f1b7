//! B21: the cost of joined messages, and of the error queue, in processor time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use scoop::prelude::*;
use scoop::{Builder, Failed, Scoop};

use crate::bench::Bench;
use crate::outcome::Outcome as Answer;
use crate::sagas::Meter;
use crate::server::Database;

/// The number of sets, or of hierarchies.
const COUNT: u32 = 3_000;

/// The number of those that warm up an engine.
const WARM_UP: u32 = 200;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.paid")]
struct Paid {
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.picked")]
struct Picked {
    order: u32,
}

/// Counts what has ended.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU64>);

impl Count {
    fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One step for a set of two messages.
struct Joined(Count);

#[saga]
#[subscribes(join(Paid, Picked, by = order, within = "1h"))]
impl Joined {
    #[step]
    async fn act(&self, _: &mut Scope<'_>, _: &JoinedMessage) -> Result<()> {
        self.0.one_more();
        Ok(())
    }
}

/// One step for each of two messages.
struct Apart(Count);

#[saga]
#[subscribes(any(Paid, Picked))]
impl Apart {
    #[step]
    async fn act(&self, _: &mut Scope<'_>, _: &ApartMessage) -> Result<()> {
        self.0.one_more();
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.failing")]
struct Fails {
    order: u32,
}

/// A hierarchy that fails in its second step, and is rolled back.
struct Failing(Count);

#[saga]
#[subscribes(Fails)]
impl Failing {
    #[step(rollback = undo)]
    async fn begin(&self, _: &mut Scope<'_>, _: &Fails) -> Result<()> {
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Fails, _: &Failure) -> Result<()> {
        self.0.one_more();
        Ok(())
    }

    #[step]
    async fn fail(&self, _: &mut Scope<'_>, _: &Fails) -> Result<()> {
        Err(Error::msg("it fails, as it should"))
    }
}

/// Handles each failed hierarchy.
struct Errors(Count);

#[saga]
#[subscribes(Failed)]
impl Errors {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, _: &Failed) -> Result<()> {
        self.0.one_more();
        Ok(())
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Joined,
    Apart,
    Unnoted,
    Noted,
}

impl Kind {
    fn builder(self, builder: Builder, count: &Count) -> Builder {
        let of = || count.clone();
        match self {
            Self::Joined => builder.provide(Joined(of())).only::<Joined>(),
            Self::Apart => builder.provide(Apart(of())).only::<Apart>(),
            Self::Unnoted => builder.provide(Failing(of())).only::<Failing>(),
            Self::Noted => {
                builder.provide(Failing(of())).provide(Errors(of())).only::<Failing>().only::<Errors>()
            }
        }
    }

    /// How often one of them counts.
    fn counts(self) -> u64 {
        match self {
            Self::Joined | Self::Unnoted => 1,
            Self::Apart | Self::Noted => 2,
        }
    }

    async fn launch(self, scoop: &Scoop, orders: std::ops::Range<u32>) -> Answer<()> {
        match self {
            Self::Joined | Self::Apart => {
                scoop.launch_all(orders.clone().map(|order| Paid { order })).await?;
                scoop.launch_all(orders.map(|order| Picked { order })).await?;
            }
            Self::Unnoted | Self::Noted => {
                scoop.launch_all(orders.map(|order| Fails { order })).await?;
            }
        }
        Ok(())
    }
}

pub(crate) async fn measure(bench: &mut Bench) -> Answer<()> {
    for round in 0..bench.settings.rounds {
        for (key, pair) in
            [("B21 join", [Kind::Joined, Kind::Apart]), ("B21 errors", [Kind::Noted, Kind::Unnoted])]
        {
            let in_turns = if round % 2 == 0 { pair } else { [pair[1], pair[0]] };
            let mut costs = vec![];
            for kind in in_turns {
                costs.push((kind, cost(bench, kind).await?));
            }
            let of = |kind| costs.iter().find(|(other, _)| *other == kind).and_then(|(_, micros)| *micros);
            if let (Some(micros), base @ Some(_)) = (of(pair[0]), of(pair[1])) {
                bench.report.add(key, micros, base);
            }
        }
    }
    bench.report.note(format!("B21: {COUNT} sets, and as many hierarchies, launched at once."));
    Ok(())
}

/// The processor time of server and program for each, in microseconds.
async fn cost(bench: &Bench, kind: Kind) -> Answer<Option<f64>> {
    let (database, count) = (bench.server.database().await?, Count::default());
    let builder = database.engine(&bench.settings, &Meter::default()).await?;
    let scoop = kind.builder(builder, &count).start().await?;
    kind.launch(&scoop, 0..WARM_UP).await?;
    ended(&database, &count, kind, WARM_UP).await?;
    let before = bench.processor_seconds().await?;
    kind.launch(&scoop, WARM_UP..WARM_UP + COUNT).await?;
    ended(&database, &count, kind, WARM_UP + COUNT).await?;
    let micros = bench.micros_since(before, COUNT.into()).await?;
    scoop.shutdown().await?;
    scoop.pool().close().await;
    bench.server.remove(database).await?;
    Ok(micros)
}

/// Waits until so many have ended, and nothing is left. Rows of ended runs are deleted by the next sweep.
async fn ended(database: &Database, count: &Count, kind: Kind, so_many: u32) -> Answer<()> {
    const LEFT: &str =
        "SELECT count(*)::float8 FROM (SELECT FROM scoop.run WHERE state <> 'ended' LIMIT 1) one";
    let (until, wanted) = (Instant::now() + Duration::from_secs(300), u64::from(so_many) * kind.counts());
    while count.0.load(Ordering::Relaxed) < wanted || database.number(LEFT).await? > 0.0 {
        if Instant::now() > until {
            return Err(format!("{} of {wanted} have ended", count.0.load(Ordering::Relaxed)).into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
