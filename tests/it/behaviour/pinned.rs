//! Sagas whose runs stay with the definition under which they began.

use std::time::Duration;

use scoop::{Handle, RunPhase, Saga};

use super::*;
use crate::support::{Database, Notes, eventually};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "pinned.trip")]
struct Trip {
    number: u32,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "pinned.departure", retention = "1 day")]
struct Departure;

/// A version of the saga: it books, awaits the departure in a step of this name, and ends with the last step.
macro_rules! version {
    ($saga:ident, $version:literal, $name:literal, [$($pin:tt)*], $awaiting:ident, $last:ident) => {
        #[derive(Clone, Default)]
        struct $saga {
            notes: Notes,
        }

        #[saga(name = $name, $($pin)*)]
        #[subscribes(Trip)]
        impl $saga {
            #[step]
            async fn book(&self, _: &mut Scope<'_>, trip: &Trip) -> Result<()> {
                self.notes.add(format!("{}: {} book", trip.number, $version));
                Ok(())
            }

            #[step(awaits(Departure, by = number))]
            async fn $awaiting(&self, _: &mut Scope<'_>, trip: &Trip, _: &Departure) -> Result<()> {
                self.notes.add(format!("{}: {} {}", trip.number, $version, stringify!($awaiting)));
                Ok(())
            }

            #[step]
            async fn $last(&self, _: &mut Scope<'_>, trip: &Trip) -> Result<()> {
                self.notes.add(format!("{}: {} {}", trip.number, $version, stringify!($last)));
                Ok(())
            }

            async fn number(&self, _: &mut Scope<'_>, trip: &Trip) -> Result<String> {
                Ok(trip.number.to_string())
            }
        }
    };
}

version!(Former, "former", "pinned-trips", [pin], depart, arrive);
version!(Newer, "newer", "pinned-trips", [pin], depart, land);
version!(FormerAlways, "former", "fixed-trips", [pin = "always"], depart, arrive);
version!(NewerAlways, "newer", "fixed-trips", [pin = "always"], depart, land);

/// Starts a program that finds nothing by polling within a test.
async fn start<S: Saga + Clone>(db: &Database, saga: &S) -> Result<Scoop> {
    let program = db.scoop().only::<S>().provide(saga.clone()).poll_interval(Duration::from_secs(3_600));
    Ok(program.start().await?)
}

async fn in_phase(scoop: &Scoop, run: &Handle, phase: RunPhase) {
    eventually("a run is in a state", async || {
        scoop
            .operate()
            .runs()
            .explain(run.id())
            .await
            .is_ok_and(|it| it.runs.iter().any(|it| it.run.phase == phase))
    })
    .await;
}

async fn depart(scoop: &Scoop, number: u32) -> Result<()> {
    scoop.signal(Departure, number.to_string()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_goes_on_under_the_definition_of_its_beginning_while_a_process_has_that() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let former = start(&db, &Former { notes: notes.clone() }).await?;
    let first = former.launch(Trip { number: 1 }).await?;
    in_phase(&former, &first, RunPhase::AwaitingSignal).await;
    let newer = start(&db, &Newer { notes: notes.clone() }).await?;
    let second = newer.launch(Trip { number: 2 }).await?;
    in_phase(&newer, &second, RunPhase::AwaitingSignal).await;
    for number in [1, 2] {
        depart(&newer, number).await?;
    }
    assert_eq!(first.ends().await?, Outcome::Committed);
    assert_eq!(second.ends().await?, Outcome::Committed);
    let mut all = notes.all();
    all.sort_unstable();
    let expected = [
        ["1: former arrive", "1: former book", "1: former depart"],
        ["2: newer book", "2: newer depart", "2: newer land"],
    ];
    assert_eq!(all, expected.concat());
    former.shutdown().await?;
    newer.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_goes_on_by_name_when_no_process_has_its_definition_any_more() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let former = start(&db, &Former { notes: notes.clone() }).await?;
    let trip = former.launch(Trip { number: 1 }).await?;
    in_phase(&former, &trip, RunPhase::AwaitingSignal).await;
    let newer = start(&db, &Newer { notes: notes.clone() }).await?;
    former.shutdown().await?;
    depart(&newer, 1).await?;
    assert_eq!(newer.find(trip.id()).await?.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["1: former book", "1: newer depart", "1: newer land"]);
    newer.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_pinned_for_always_is_stuck_until_a_process_with_its_definition_starts() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let former = start(&db, &FormerAlways { notes: notes.clone() }).await?;
    let trip = former.launch(Trip { number: 1 }).await?;
    in_phase(&former, &trip, RunPhase::AwaitingSignal).await;
    let newer = start(&db, &NewerAlways { notes: notes.clone() }).await?;
    former.shutdown().await?;
    depart(&newer, 1).await?;
    in_phase(&newer, &trip, RunPhase::Stuck).await;
    let text = newer.operate().runs().explain(trip.id()).await?.to_string();
    assert!(text.contains("of its saga, which is pinned: start a program with that"), "{text}");
    let former = start(&db, &FormerAlways { notes: notes.clone() }).await?;
    assert_eq!(former.find(trip.id()).await?.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["1: former book", "1: former depart", "1: former arrive"]);
    former.shutdown().await?;
    newer.shutdown().await?;
    Ok(())
}
