//! Handlers that answer. Whoever launched a message reads the answers in its next step, each with the
//! name of the saga that gave it; who has nothing to say says nothing.
//!
//! ```text
//! cargo run --example replies
//! ```

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct FlightWanted {
    city: String,
}

/// Asks every airline that listens what it would take.
#[derive(Message, Serialize, Deserialize)]
#[message(reply = Fare)]
struct FareWanted {
    city: String,
    date: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Fare {
    euros: u32,
    date: String,
}

#[derive(Default)]
struct FlightAgent;

#[saga]
#[subscribes(FlightWanted)]
impl FlightAgent {
    #[step]
    async fn ask(&self, scope: &mut Scope<'_>, wanted: &FlightWanted) -> Result<()> {
        for date in ["Monday", "Sunday"] {
            scope.launch(FareWanted { city: wanted.city.clone(), date: date.into() }).await?;
        }
        Ok(())
    }

    /// Starts when every airline has dealt with both questions.
    #[step]
    async fn haggle(&self, scope: &mut Scope<'_>, wanted: &FlightWanted) -> Result<()> {
        let fares = scope.replies::<FareWanted>().await?;
        for fare in &fares {
            println!("{}: {} euros on {}", fare.handler, fare.value.euros, fare.value.date);
        }
        let given: Vec<_> = fares.iter().map(|fare| (&*fare.handler, fare.value.euros)).collect();
        assert_eq!(given.len(), 3, "nobody flies slowly on a Sunday: {given:?}");
        println!("and on a Tuesday?");
        scope.launch(FareWanted { city: wanted.city.clone(), date: "Tuesday".into() }).await?;
        Ok(())
    }

    #[step]
    async fn choose(&self, scope: &mut Scope<'_>, _: &FlightWanted) -> Result<()> {
        let newest = scope.replies::<FareWanted>().await?;
        assert!(newest.iter().all(|fare| fare.value.date == "Tuesday"), "{newest:?}");
        let all = scope.all_replies::<FareWanted>().await?;
        let best = all.iter().min_by_key(|fare| fare.value.euros);
        let best = best.ok_or_else(|| Error::msg("nobody flies there"))?;
        println!("{} it is, for {} euros", best.handler, best.value.euros);
        assert_eq!((&*best.handler, best.value.euros, all.len()), ("slow-air", 40, 5));
        Ok(())
    }
}

#[derive(Default)]
struct SwiftAir;

#[saga]
#[subscribes(FareWanted)]
impl SwiftAir {
    #[step]
    async fn quote(&self, scope: &mut Scope<'_>, wanted: &FareWanted) -> Result<()> {
        let euros = if wanted.date == "Sunday" { 300 } else { 180 };
        scope.reply(wanted, Fare { euros, date: wanted.date.clone() })
    }
}

#[derive(Default)]
struct SlowAir;

#[saga]
#[subscribes(FareWanted)]
impl SlowAir {
    #[step]
    async fn quote(&self, scope: &mut Scope<'_>, wanted: &FareWanted) -> Result<()> {
        match &*wanted.date {
            "Sunday" => Ok(()),
            "Tuesday" => scope.reply(wanted, Fare { euros: 40, date: wanted.date.clone() }),
            _ => scope.reply(wanted, Fare { euros: 90, date: wanted.date.clone() }),
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let flight = scoop.launch(FlightWanted { city: "Porto".into() }).await?;
    assert_eq!(flight.wait().await?, Outcome::Committed);
    scoop.shutdown().await;
    Ok(())
}
