//! Handlers that reply. The saga that launched the messages reads the replies in its next step, each with the
//! name of its saga. Replies to messages launched again by `on_child_failure` are included, and those of runs
//! that rolled back are not. The client gets the reply to its own message as the result of the whole hierarchy.
//!
//! ```text
//! cargo run -p examples --example replies
//! ```

use scoop::errors::NoResult;
use scoop::prelude::*;

/// The reply is the price of the whole trip.
#[derive(Message, Serialize, Deserialize)]
#[message(reply = Total)]
struct TripWanted {
    nights: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Total {
    euros: u32,
}

/// Each hotel may make any number of offers.
#[derive(Message, Serialize, Deserialize)]
#[message(replies = Offer)]
struct OffersWanted {
    nights: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Offer {
    night: String,
    euros: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(reply = Booking)]
struct BookNight {
    night: String,
    euros: u32,
}

#[derive(Serialize, Deserialize)]
struct Booking {
    euros: u32,
}

#[derive(Default)]
struct TravelAgent;

#[saga]
#[subscribes(TripWanted)]
impl TravelAgent {
    #[step]
    async fn ask(&self, scope: &mut Scope<'_>, trip: &TripWanted) -> Result<()> {
        scope.launch(OffersWanted { nights: trip.nights.clone() }).await?;
        Ok(())
    }

    /// Starts when every subscribed hotel has finished.
    #[step(on_child_failure = book_again)]
    async fn book(&self, scope: &mut Scope<'_>, trip: &TripWanted) -> Result<()> {
        let offers = scope.replies::<OffersWanted>().await?;
        for night in &trip.nights {
            let of_night = offers.iter().filter(|offer| offer.value.night == *night);
            let best = of_night.min_by_key(|offer| offer.value.euros);
            let best = best.ok_or_else(|| Error::msg(format!("no hotel has a room on {night}")))?;
            println!("{night}: {} for {} euros", best.handler, best.value.euros);
            scope.launch(BookNight { night: night.clone(), euros: best.value.euros }).await?;
        }
        Ok(())
    }

    /// Offers more for each booking that failed. `handled` excludes bookings that were launched again before.
    async fn book_again(&self, scope: &mut Scope<'_>, _: &TripWanted, why: &Failure) -> Result<()> {
        if scope.handler_iteration() == 2 {
            return Err(Error::failure(why.clone()));
        }
        let children = scope.children().await?;
        for child in children.iter().filter(|child| child.outcome.failure().is_some() && !child.handled) {
            let BookNight { night, euros } = child.message()?;
            println!("{night} is not to be had for {euros} euros");
            scope.launch(BookNight { night, euros: euros + 30 }).await?;
        }
        Ok(())
    }

    /// Every night counts once, for any number of attempts.
    #[step]
    async fn add_up(&self, scope: &mut Scope<'_>, trip: &TripWanted) -> Result<()> {
        let bookings = scope.replies::<BookNight>().await?;
        assert_eq!(bookings.len(), trip.nights.len());
        scope.reply(trip, Total { euros: bookings.iter().map(|booking| booking.value.euros).sum() })
    }
}

#[derive(Default)]
struct GrandHotel;

#[saga]
#[subscribes(OffersWanted)]
impl GrandHotel {
    #[step]
    async fn offer(&self, scope: &mut Scope<'_>, wanted: &OffersWanted) -> Result<()> {
        for night in &wanted.nights {
            scope.reply(wanted, Offer { night: night.clone(), euros: 200 })?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct HarbourInn;

#[saga]
#[subscribes(OffersWanted)]
impl HarbourInn {
    #[step]
    async fn offer(&self, scope: &mut Scope<'_>, wanted: &OffersWanted) -> Result<()> {
        for night in wanted.nights.iter().filter(|night| *night != "Saturday") {
            scope.reply(wanted, Offer { night: night.clone(), euros: 80 })?;
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0} costs more now")]
struct TooCheap(String);

#[derive(Default)]
struct Reception;

#[saga]
#[subscribes(BookNight)]
impl Reception {
    /// A reply that counts only if the booking commits.
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, book: &BookNight) -> Result<()> {
        scope.reply(book, Booking { euros: book.euros })
    }

    #[step]
    async fn confirm(&self, _: &mut Scope<'_>, book: &BookNight) -> Result<()> {
        let least = match &*book.night {
            "Friday" => 100,
            "New Year's Eve" => 1_000,
            _ => 0,
        };
        if book.euros < least { Err(TooCheap(book.night.clone()).into()) } else { Ok(()) }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let nights = |nights: [&str; 3]| TripWanted { nights: nights.map(str::to_owned).into() };

    let total = scoop.launch(nights(["Thursday", "Friday", "Saturday"])).result().await?;
    println!("the trip costs {} euros", total.euros);
    assert_eq!(total, Total { euros: 80 + 110 + 200 });

    // The same in two parts. The handle may also come from `scoop.find(id)`.
    let trip = scoop.launch(nights(["Thursday", "Friday", "New Year's Eve"])).await?;
    let error = trip.result::<TripWanted>().await.expect_err("a night is too dear");
    let Some(NoResult::RolledBack(failure)) = error.no_result() else { panic!("{error:?}") };
    println!("no trip: {}", failure.root_causes()[0].message);
    scoop.shutdown().await?;
    Ok(())
}
