//! Several processes with every kind of fault, and the same course for the same seed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt, pending};
use scoop::prelude::*;
use scoop::{Handle, InMemory, LoggedEvent};
use scoop_runtime::simulation::{self, FaultLink, Process};

#[derive(Message, Serialize, Deserialize)]
struct Trip {
    number: u32,
}

#[derive(Message, Serialize, Deserialize)]
struct Book {
    trip: u32,
    leg: u32,
}

/// Books its legs, sleeps, and fails if its number says so.
#[derive(Default)]
struct TripSaga;

#[saga(name = "trip")]
#[subscribes(Trip)]
impl TripSaga {
    #[step(rollback = cancel, on_child_failure = shrug)]
    async fn book(&self, scope: &mut Scope<'_>, trip: &Trip) -> Result<()> {
        for leg in 0..3 {
            scope.launch(Book { trip: trip.number, leg }).await?;
        }
        Ok(())
    }

    async fn shrug(&self, _: &mut Scope<'_>, trip: &Trip, failure: &Failure) -> Result<()> {
        match trip.number % 3 {
            0 => Ok(()),
            _ => Err(Error::failure(failure.clone())),
        }
    }

    async fn cancel(&self, _: &mut Scope<'_>, _: &Trip, _: &Failure) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn wait(&self, scope: &mut Scope<'_>, _: &Trip) -> Result<()> {
        scope.sleep(Duration::from_secs(5)).await
    }

    #[step]
    async fn travel(&self, _: &mut Scope<'_>, trip: &Trip) -> Result<()> {
        if trip.number % 4 == 1 { Err(Error::msg("missed it")) } else { Ok(()) }
    }
}

#[derive(Default)]
struct BookSaga;

#[saga(name = "book")]
#[subscribes(Book)]
impl BookSaga {
    #[step(rollback = undo)]
    async fn ask(&self, _: &mut Scope<'_>, _: &Book) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(30)).await;
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Book, _: &Failure) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn book(&self, _: &mut Scope<'_>, book: &Book) -> Result<()> {
        if book.trip % 5 == 3 && book.leg == 1 { Err(Error::msg("sold out")) } else { Ok(()) }
    }
}

/// Chance that follows from a seed.
#[derive(Default)]
struct Chance(AtomicU64);

impl Chance {
    fn next(&self, below: u64) -> u64 {
        let mut x = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % below
    }
}

/// A connection to the database with occasional faults of every kind, while it is bad.
#[derive(Clone, Default)]
struct Bad {
    chance: Arc<Chance>,
    bad: Arc<AtomicBool>,
    dead: Arc<AtomicBool>,
}

impl Bad {
    fn fate(&self) -> BoxFuture<'static, io::Result<()>> {
        let (dead, bad) = (self.dead.clone(), self.bad.load(Ordering::Relaxed));
        let delay = Duration::from_millis(self.chance.next(20));
        let fails = bad && self.chance.next(25) == 0;
        async move {
            tokio::time::sleep(delay).await;
            if dead.load(Ordering::Relaxed) {
                pending().await
            }
            if fails { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
        }
        .boxed()
    }
}

impl FaultLink for Bad {
    fn before(&self, _: &'static str) -> BoxFuture<'static, io::Result<()>> {
        self.fate()
    }

    fn after(&self, _: &'static str) -> BoxFuture<'static, io::Result<()>> {
        self.fate()
    }

    fn heard(&self) -> BoxFuture<'static, u32> {
        let times = u32::try_from(self.chance.next(3)).expect("it is small");
        std::future::ready(times).boxed()
    }
}

/// A program that can die.
struct Program {
    link: Bad,
    process: Process,
    scoop: Scoop,
}

impl Program {
    async fn start(database: &InMemory, chance: &Arc<Chance>) -> Result<Self> {
        let link = Bad { chance: chance.clone(), ..Bad::default() };
        let process = Process::new(database, Arc::new(link.clone()));
        let builder = Scoop::builder().simulated_process(&process).poll_interval(Duration::from_secs(1));
        let scoop = builder.only::<TripSaga>().only::<BookSaga>().start().await?;
        link.bad.store(true, Ordering::Relaxed);
        Ok(Self { link, process, scoop })
    }

    fn die(self) {
        self.link.dead.store(true, Ordering::Relaxed);
        self.process.disconnect();
        // Dropping the handle would be a shutdown.
        std::mem::forget(self.scoop);
    }
}

/// Trips with two processes, of which one dies and one is taken for dead, and how they ended.
async fn trips(seed: u64, database: &InMemory) -> Result<Vec<Handle>> {
    simulation::seed(seed);
    let chance = Arc::new(Chance(AtomicU64::new(seed)));
    let (doomed, zombie) =
        (Program::start(database, &chance).await?, Program::start(database, &chance).await?);
    let client = Scoop::builder().in_memory_database(database).client().await?;
    let mut launched = vec![];
    for number in 0..20 {
        launched.push(client.launch(Trip { number }).await?);
        tokio::time::sleep(Duration::from_millis(chance.next(40))).await;
    }
    client.cancel(launched[7].id(), "changed my mind").await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    doomed.die();
    tokio::time::sleep(Duration::from_millis(500)).await;
    zombie.process.disconnect();
    tokio::time::sleep(Duration::from_secs(10)).await;
    zombie.link.bad.store(false, Ordering::Relaxed);
    for trip in &launched {
        tokio::time::timeout(Duration::from_secs(3_600), trip.wait()).await??;
    }
    Ok(launched)
}

/// Runs this in a runtime of its own, with a clock that is paused from the beginning.
fn run<T>(simulated: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be made").block_on(simulated)
}

fn fresh() -> InMemory {
    InMemory::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600))
}

fn log_of(seed: u64) -> Vec<LoggedEvent> {
    run(async {
        let database = fresh();
        trips(seed, &database).await.expect("all trips end");
        database.event_log()
    })
}

#[test]
fn one_seed_takes_the_same_course_each_time_and_another_another() {
    let (once, again) = (log_of(1), log_of(1));
    let differs = once.iter().zip(&again).position(|(one, other)| one != other);
    assert_eq!((once.len(), differs), (again.len(), None));
    assert!(once.len() > 200, "{}", once.len());
    assert_ne!(once, log_of(2));
}

#[test]
fn every_trip_ends_as_planned_despite_faults() {
    for seed in 0..10 {
        let (undone, left) = run(async {
            let (database, mut undone) = (fresh(), vec![]);
            for (number, trip) in trips(seed, &database).await?.iter().enumerate() {
                if let Outcome::RolledBack(_) = trip.wait().await? {
                    undone.push(number);
                }
            }
            Ok::<_, Error>((undone, database.working_set()))
        })
        .expect("all trips end");
        let by_itself = |number: &usize| number % 4 == 1 || number % 5 == 3 && !number.is_multiple_of(3);
        let expected: Vec<_> = (0..20).filter(|number| *number == 7 || by_itself(number)).collect();
        assert_eq!(undone, expected, "seed {seed}");
        assert_eq!(left, [], "seed {seed}");
    }
}
