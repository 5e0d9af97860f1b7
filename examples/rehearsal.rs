//! Tests of a saga without a database: each of its steps fails once, each runs twice, and each commit meets a
//! crash. Time is virtual, so that a stay of two nights takes less than a second.
//!
//! ```text
//! cargo run -p examples --example rehearsal
//! ```

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scoop::prelude::*;
use scoop::{Builder, testing};

#[derive(Message, Serialize, Deserialize)]
struct TripBooked {
    nights: u64,
}

#[derive(Message, Serialize, Deserialize)]
struct BookRoom;

/// An external service: it identifies bookings and mails by their keys, so that a repeated request has no
/// effect.
#[derive(Clone, Default)]
struct Agency {
    rooms: Arc<Mutex<BTreeSet<String>>>,
    mails: Arc<Mutex<BTreeSet<String>>>,
}

struct Trips {
    agency: Agency,
}

#[saga]
#[subscribes(TripBooked)]
impl Trips {
    #[step]
    async fn book(&self, scope: &mut Scope<'_>, _: &TripBooked) -> Result<()> {
        scope.launch(BookRoom).await?;
        Ok(())
    }

    #[step]
    async fn stay(&self, scope: &mut Scope<'_>, trip: &TripBooked) -> Result<()> {
        scope.sleep(Duration::from_secs(trip.nights * 24 * 60 * 60)).await
    }

    #[step]
    async fn say_thanks(&self, scope: &mut Scope<'_>, _: &TripBooked) -> Result<()> {
        self.agency.mails.lock().unwrap().insert(scope.idempotency_key().to_string());
        Ok(())
    }
}

struct Rooms {
    agency: Agency,
}

#[saga]
#[subscribes(BookRoom)]
impl Rooms {
    /// Only recorded steps are compensated. A booking that succeeds right before its step fails is not
    /// recorded, so the step before it has the compensation that cancels.
    #[step(rollback = cancel)]
    async fn choose(&self, scope: &mut Scope<'_>, _: &BookRoom) -> Result<String> {
        Ok(scope.idempotency_key().to_string())
    }

    #[step]
    async fn reserve(&self, _: &mut Scope<'_>, _: &BookRoom, room: &String) -> Result<()> {
        self.agency.rooms.lock().unwrap().insert(room.clone());
        Ok(())
    }

    async fn cancel(&self, _: &mut Scope<'_>, _: &BookRoom, room: &String, _: &Failure) -> Result<()> {
        self.agency.rooms.lock().unwrap().remove(room);
        Ok(())
    }
}

/// Runs a trip in a database of its own. Returns its outcome, and the numbers of rooms and mails.
async fn trip(builder: Builder) -> Result<(Outcome, usize, usize)> {
    let agency = Agency::default();
    let (trips, rooms) = (Trips { agency: agency.clone() }, Rooms { agency: agency.clone() });
    let scoop = builder.in_memory().provide(trips).provide(rooms).start().await?;
    let outcome = scoop.launch(TripBooked { nights: 2 }).await?.wait().await?;
    scoop.shutdown().await?;
    let (rooms, mails) = (agency.rooms.lock().unwrap().len(), agency.mails.lock().unwrap().len());
    Ok((outcome, rooms, mails))
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<()> {
    let steps = testing::fail_each_step(async |builder, failing| {
        let (outcome, rooms, _) = trip(builder).await?;
        assert_eq!(outcome == Outcome::Committed, failing.is_none(), "{outcome:?}");
        assert_eq!(rooms, usize::from(failing.is_none()), "all or nothing");
        Ok(())
    })
    .await?;
    steps.iter().for_each(|step| println!("undone: {step}"));

    let twice = testing::run_each_step_twice(async |builder| {
        let (outcome, rooms, mails) = trip(builder).await?;
        assert_eq!((outcome, rooms, mails), (Outcome::Committed, 1, 1));
        Ok(())
    })
    .await?;
    println!("once although run twice: {twice} steps");

    let crashes = testing::crash_at_each_commit(async |builder, _| {
        let (outcome, rooms, mails) = trip(builder).await?;
        assert_eq!((outcome, rooms, mails), (Outcome::Committed, 1, 1));
        Ok(())
    })
    .await?;
    crashes.iter().for_each(|crash| println!("survived: {crash}"));
    Ok(())
}
