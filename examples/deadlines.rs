//! Deadlines. The children of a message's handlers inherit its deadline, and may tighten it, never extend it. A
//! waiting run is woken the moment its deadline passes; a long step checks its deadline itself. A run that
//! misses a deadline is rolled back, with the source of the deadline in its failure.
//!
//! ```text
//! cargo run -p examples --example deadlines
//! ```

use std::time::{Duration, Instant};

use scoop::prelude::*;
use scoop::{Deadline, DeadlineKind};

#[derive(Message, Serialize, Deserialize)]
struct DinnerOrdered {
    from: Source,
}

#[derive(Debug, Serialize, Deserialize)]
enum Source {
    Oven,
    OvenWithClock,
    Pan,
}

#[derive(Message, Serialize, Deserialize)]
struct BakeDinner;

#[derive(Default)]
struct DinnerKitchen;

#[saga]
#[subscribes(DinnerOrdered)]
impl DinnerKitchen {
    #[step]
    async fn cook(&self, scope: &mut Scope<'_>, dinner: &DinnerOrdered) -> Result<()> {
        match dinner.from {
            Source::Oven => scope.launch(BakeDinner).await?,
            Source::OvenWithClock => {
                let patience = Duration::from_millis(300);
                scope.launch(BakeDinner).deadline(patience).source("the kitchen").await?
            }
            Source::Pan => return fry(scope).await,
        };
        Ok(())
    }

    #[step]
    async fn serve(&self, _: &mut Scope<'_>, _: &DinnerOrdered) -> Result<()> {
        unreachable!("dinner takes an hour")
    }
}

/// No step is interrupted, so a long one checks its deadline in between.
async fn fry(scope: &mut Scope<'_>) -> Result<()> {
    for _slice in 0..3600 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        scope.check().await?;
    }
    Ok(())
}

#[derive(Default)]
struct DinnerOven;

#[saga]
#[subscribes(BakeDinner)]
impl DinnerOven {
    #[step(sleep = "1 hour", rollback = throw_away)]
    async fn put_in(&self, scope: &mut Scope<'_>, _: &BakeDinner) -> Result<()> {
        let deadline = scope.context().deadline(DeadlineKind::HappyPath)?;
        println!("  in the oven, as long as {} wait", deadline.as_ref().map_or("all", Deadline::source));
        Ok(())
    }

    async fn throw_away(&self, _: &mut Scope<'_>, _: &BakeDinner, _: &Failure) -> Result<()> {
        println!("  out of the oven, half done");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let (soon, later) = (Duration::from_millis(500), Duration::from_secs(7200));
    for (from, patience, who) in [
        (Source::Oven, soon, "the guests"),
        (Source::OvenWithClock, later, "the kitchen"),
        (Source::Pan, soon, "the guests"),
    ] {
        println!("dinner from the {from:?} within {patience:?}, please");
        let began = Instant::now();
        let dinner = scoop.launch(DinnerOrdered { from }).deadline(patience).source("the guests").await?;
        let Outcome::RolledBack(why) = dinner.wait().await? else { panic!("{}", dinner.tree().await?) };
        println!("  given up after {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(10));
        let missed = why.root_causes()[0];
        assert_eq!((&*missed.kind, &*missed.source), ("MissedHappyPathDeadline", who), "{}", why.report());
    }
    scoop.shutdown().await?;
    Ok(())
}
