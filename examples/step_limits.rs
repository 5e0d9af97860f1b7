//! The time limit of a step. A step that takes longer is stopped at the `.await` where it waits, its
//! transaction is rolled back, and it fails like any other: with `retry` it is attempted again, without it
//! the saga rolls back.
//!
//! ```text
//! cargo run -p examples --example step_limits
//! ```

use std::future::pending;
use std::time::{Duration, Instant};

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct TideAsked {
    harbour: String,
    /// The number of stations that do not answer today.
    dead_stations: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Tide {
    centimetres: i32,
    station: u32,
}

#[derive(Default)]
struct TideTables;

#[saga]
#[subscribes(TideAsked)]
impl TideTables {
    #[step(rollback = close)]
    async fn open(&self, _: &mut Scope<'_>, _: &TideAsked) -> Result<()> {
        Ok(())
    }

    /// Each attempt has its own 200 ms.
    #[step(timeout = "200ms", retry(max = 2, backoff = "10ms"))]
    async fn measure(&self, scope: &mut Scope<'_>, ask: &TideAsked) -> Result<Tide> {
        let station = scope.attempt();
        println!("  {}: asking station {station}", ask.harbour);
        if station < ask.dead_stations {
            pending::<()>().await; // the line is dead
        }
        Ok(Tide { centimetres: 310, station })
    }

    #[step]
    async fn publish(&self, _: &mut Scope<'_>, ask: &TideAsked, tide: &Tide) -> Result<()> {
        println!("  {}: {} cm, says station {}", ask.harbour, tide.centimetres, tide.station);
        Ok(())
    }

    async fn close(&self, _: &mut Scope<'_>, ask: &TideAsked, why: &Failure) -> Result<()> {
        println!("  {}: no tide today, {}", ask.harbour, why.message);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;

    let tide = scoop.launch(TideAsked { harbour: "Brest".into(), dead_stations: 1 }).await?;
    assert_eq!(tide.wait().await?, Outcome::Committed);

    let began = Instant::now();
    let tide = scoop.launch(TideAsked { harbour: "Cork".into(), dead_stations: 9 }).await?;
    let Outcome::RolledBack(why) = tide.wait().await? else { panic!("{}", tide.tree().await?) };
    assert_eq!(why.kind, "StepTimeout", "{}", why.report());
    assert!(began.elapsed() >= Duration::from_millis(600), "three attempts of 200 ms each");

    scoop.shutdown().await?;
    Ok(())
}
