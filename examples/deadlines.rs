//! Deadlines. What a message's handlers launch inherits the deadline of the message, and may tighten it,
//! never loosen it. A run that waits is woken the moment its deadline passes; a step that takes long
//! looks for itself. Who misses a deadline is rolled back, and learns who had set it.
//!
//! ```text
//! cargo run --example deadlines
//! ```

use std::time::{Duration, Instant};

use scoop::prelude::*;

/// Guests are hungry, and there are several ways to feed them.
#[derive(Message, Serialize, Deserialize)]
enum DinnerOrdered {
    /// Wait for somebody who takes an hour.
    FromTheOven,
    /// The same, but do not wait longer than the kitchen says.
    FromAnOvenWithAClock,
    /// Cook, a slice at a time.
    FromThePan,
}

#[derive(Message, Serialize, Deserialize)]
struct BakeDinner;

#[derive(Default)]
struct DinnerKitchen;

#[saga]
#[subscribes(DinnerOrdered)]
impl DinnerKitchen {
    #[step(rollback = apologize)]
    async fn begin(&self, _: &mut Scope<'_>, _: &DinnerOrdered) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn cook(&self, scope: &mut Scope<'_>, dinner: &DinnerOrdered) -> Result<()> {
        match dinner {
            DinnerOrdered::FromTheOven => scope.launch(BakeDinner).await?,
            DinnerOrdered::FromAnOvenWithAClock => {
                let patience = Duration::from_millis(300);
                scope.launch(BakeDinner).deadline(patience).source("the kitchen").await?
            }
            DinnerOrdered::FromThePan => return fry(scope).await,
        };
        Ok(())
    }

    #[step]
    async fn serve(&self, _: &mut Scope<'_>, _: &DinnerOrdered) -> Result<()> {
        unreachable!("dinner takes an hour")
    }

    async fn apologize(&self, _: &mut Scope<'_>, _: &DinnerOrdered, why: &Failure) -> Result<()> {
        println!("  sorry: {}", why.root_causes()[0].message.split('.').next().unwrap_or_default());
        Ok(())
    }
}

/// Nothing interrupts a step, so one that takes long looks in between.
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
    #[step(sleep = "1 hour")]
    async fn put_in(&self, scope: &mut Scope<'_>, _: &BakeDinner) -> Result<()> {
        let deadline = scope.context().deadline(scoop::DeadlineKind::HappyPath)?;
        println!(
            "  in the oven, on behalf of {}",
            deadline.map_or("nobody".into(), |d| d.source().to_owned())
        );
        Ok(())
    }

    #[step]
    async fn take_out(&self, _: &mut Scope<'_>, _: &BakeDinner) -> Result<()> {
        unreachable!("that is an hour from now")
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let soon = Duration::from_millis(500);
    let later = Duration::from_secs(7200);
    for (dinner, patience, who) in [
        (DinnerOrdered::FromTheOven, soon, "the guests"),
        (DinnerOrdered::FromAnOvenWithAClock, later, "the kitchen"),
        (DinnerOrdered::FromThePan, soon, "the guests"),
    ] {
        println!("dinner in {patience:?}, please");
        let began = Instant::now();
        let dinner = scoop.launch(dinner).deadline(patience).source("the guests").await?;
        let Outcome::RolledBack(why) = dinner.wait().await? else { panic!("{}", dinner.tree().await?) };
        assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
        let missed = why.root_causes()[0];
        assert_eq!((&*missed.kind, &*missed.source), ("MissedHappyPathDeadline", who), "{}", why.report());
    }
    scoop.shutdown().await;
    Ok(())
}
