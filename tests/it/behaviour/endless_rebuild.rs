//! The working set of a run that went on anew follows from its newest execution.

use std::time::Duration;

use super::rebuild::is_rebuilt;
use super::*;
use crate::support::{Database, Gate};

#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "endless-rebuilt")]
struct Feed {
    cursor: u32,
    fails: bool,
}

#[derive(Serialize, Deserialize)]
struct Fetched(u32);

handler! {
    Reader(gate): "feed" on Feed;
    #[step(rollback = unfetch)]
    async fn fetch(&self, _: &mut Scope<'_>, feed: &Feed) -> Result<Fetched> {
        self.gate.pass().await;
        Ok(Fetched(feed.cursor))
    }

    #[step(rollback = unpoll)]
    async fn poll(&self, scope: &mut Scope<'_>, _: &Feed) -> Result<Next<ReaderStep>> {
        self.gate.pass().await;
        Ok(if scope.iteration() == 0 { Next::Repeat } else { Next::Continue })
    }

    #[step]
    async fn turn(&self, scope: &mut Scope<'_>, feed: &Feed, fetched: &Fetched) -> Result<Anew<ReaderStep, Feed>> {
        self.gate.pass().await;
        assert_eq!(fetched.0, feed.cursor);
        if feed.cursor == 2 {
            return if feed.fails { Err(SIMULATED.into()) } else { Ok(Next::Continue.into()) };
        }
        scope.sleep(Duration::from_millis(1)).await?;
        Ok(Next::anew(Feed { cursor: feed.cursor + 1, ..feed.clone() }))
    }

    async fn unfetch(&self, _: &mut Scope<'_>, feed: &Feed, fetched: &Fetched, _: &Failure) -> Result<()> {
        self.gate.pass().await;
        assert_eq!((fetched.0, feed.cursor), (2, 2));
        Ok(())
    }

    rollback unpoll => at_gate();
}

/// Stops everything after so many steps, rebuilds, and goes on.
async fn stopped_after(steps: usize, fails: bool) -> Result<Outcome> {
    let db = Database::new().await;
    let gate = Gate::default();
    let start = || db.scoop().only::<Reader>().provide(Reader { gate: gate.clone() }).start();
    let scoop = start().await?;
    let root = scoop.launch(Feed { cursor: 0, fails }).await?;
    for _ in 0..steps {
        gate.arrivals(1).await;
        gate.open(1);
    }
    gate.arrivals(1).await;
    // The gate opens when no new step is begun any more.
    tokio::join!(scoop.shutdown(), async { gate.open(10_000) }).0?;
    is_rebuilt(&db).await?;
    let scoop = start().await?;
    let outcome = scoop.find(root.id()).await?.ends().await?;
    scoop.shutdown().await?;
    is_rebuilt(&db).await?;
    Ok(outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn run_is_rebuilt_in_every_execution() -> Result<()> {
    for steps in 0..10 {
        assert_eq!(stopped_after(steps, false).await?, Outcome::Committed);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_to_the_beginning_of_an_execution_is_rebuilt() -> Result<()> {
    for steps in [5, 12, 13, 14] {
        assert!(matches!(stopped_after(steps, true).await?, Outcome::RolledBack(_)), "after {steps}");
    }
    Ok(())
}
