//! Waiting for a time. A sleeping saga holds neither a task nor a connection, and a restart of the program does
//! not change its time. Here it is fractions of a second; years work as well.
//!
//! ```text
//! cargo run -p examples --example time
//! ```

use std::time::{Duration, SystemTime};

use scoop::prelude::*;
use scoop::tree::Tree;

#[derive(Message, Serialize, Deserialize)]
struct TrialBegun {
    ends: SystemTime,
}

#[derive(Default)]
struct TrialPeriod;

#[saga]
#[subscribes(TrialBegun)]
impl TrialPeriod {
    /// Sleeps for this time after every run of this step.
    #[step(sleep = "200 ms")]
    async fn welcome(&self, _: &mut Scope<'_>, _: &TrialBegun) -> Result<()> {
        println!("welcome");
        Ok(())
    }

    /// Sleeps for a time chosen by the step. The call returns at once; the next step comes later.
    #[step]
    async fn give_a_tip(&self, scope: &mut Scope<'_>, _: &TrialBegun) -> Result<Next<TrialPeriodStep>> {
        println!("tip number {}", scope.iteration() + 1);
        scope.sleep(Duration::from_millis(100) * (scope.iteration() + 1)).await?;
        Ok(if scope.iteration() < 1 { Next::Repeat } else { Next::Continue })
    }

    /// Begins at an instant, at once if that has passed.
    #[step(at = end)]
    async fn ask_for_money(&self, _: &mut Scope<'_>, _: &TrialBegun) -> Result<()> {
        println!("your trial is over");
        Ok(())
    }

    async fn end(&self, _: &mut Scope<'_>, trial: &TrialBegun) -> Result<SystemTime> {
        Ok(trial.ends)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let now = SystemTime::now();
    let (begins, ends) = (now + Duration::from_millis(300), now + Duration::from_millis(1500));
    let trial = scoop.launch(TrialBegun { ends }).delay(begins).await?;
    assert_eq!(trial.wait().await?, Outcome::Committed);

    // A sleep counts from its request, a little before its step is recorded.
    let tree = trial.tree().await?;
    let begun = tree.roots()[0].began_at().expect("it has begun");
    assert!(begun > begins, "{tree}");
    assert!(nth_end(&tree, "give_a_tip", 0) > begun + Duration::from_millis(200), "{tree}");
    assert!(nth_end(&tree, "give_a_tip", 1) > begun + Duration::from_millis(200 + 100), "{tree}");
    let asked = nth_end(&tree, "ask_for_money", 0);
    assert!(asked > begun + Duration::from_millis(200 + 100 + 200), "{tree}");
    assert!(asked > ends, "{tree}");
    println!("{tree}");

    scoop.shutdown().await?;
    Ok(())
}

/// The time at which the nth instance of a step was done.
fn nth_end(tree: &Tree, step: &str, nth: usize) -> SystemTime {
    let events = tree.roots()[0].events.iter();
    let mut ends = events.filter(|event| event.step.as_deref() == Some(step)).filter_map(|event| event.at);
    ends.nth(nth).unwrap_or_else(|| panic!("no {step}\n{tree}"))
}
