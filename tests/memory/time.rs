//! Time: deadlines, pauses between attempts, schedules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use scoop::prelude::*;
use scoop::requests::{CancelAnswer, RollbackAnswer};
use scoop::{EventKind, InMemory};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Message, Serialize, Deserialize)]
struct Watch {
    fails: u32,
}

#[derive(Message, Serialize, Deserialize)]
struct Unsubscribed;

/// Sleeps for a day, then fails so many times.
#[derive(Clone, Default)]
struct Watchman {
    tried: Arc<AtomicU32>,
}

#[saga(name = "watchman")]
#[subscribes(Watch)]
impl Watchman {
    #[step(rollback = wake)]
    async fn sleep(&self, scope: &mut Scope<'_>, _: &Watch) -> Result<()> {
        scope.sleep(DAY).await
    }

    async fn wake(&self, _: &mut Scope<'_>, _: &Watch, _: &Failure) -> Result<()> {
        Ok(())
    }

    #[step(retry(max = 3, backoff = "1h..8h", jitter = 0.0))]
    async fn look(&self, _: &mut Scope<'_>, watch: &Watch) -> Result<()> {
        match self.tried.fetch_add(1, Ordering::Relaxed) < watch.fails {
            true => Err(Error::msg("too dark")),
            false => Ok(()),
        }
    }
}

struct Hourly {
    ticks: Arc<AtomicU32>,
}

#[saga(name = "hourly", every = "1h")]
#[subscribes(Tick)]
impl Hourly {
    #[step]
    async fn count(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

async fn watchman(database: &InMemory) -> Result<Scoop> {
    Ok(Scoop::builder()
        .in_memory_database(database)
        .only::<Watchman>()
        .provide(Watchman::default())
        .start()
        .await?)
}

#[tokio::test(start_paused = true)]
async fn pauses_between_attempts_pass() -> Result<()> {
    let database = InMemory::new();
    let scoop = watchman(&database).await?;
    let start = database.now();
    assert_eq!(scoop.launch(Watch { fails: 3 }).await?.wait().await?, Outcome::Committed);
    let passed = database.now().duration_since(start)?;
    let expected = DAY + HOUR + 2 * HOUR + 4 * HOUR;
    assert!(passed >= expected && passed < expected + HOUR, "{passed:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn sleeping_run_that_misses_a_deadline_is_undone_in_time() -> Result<()> {
    let database = InMemory::new();
    let scoop = watchman(&database).await?;
    let start = database.now();
    let watch = scoop.launch(Watch { fails: 0 }).deadline(HOUR).await?;
    let Outcome::RolledBack(failure) = watch.wait().await? else { panic!("it did not give up") };
    assert!(failure.report().contains("eadline"), "{}", failure.report());
    let passed = database.now().duration_since(start)?;
    assert!(passed >= HOUR && passed < HOUR + Duration::from_secs(1), "{passed:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn sleeping_run_can_be_cancelled_and_an_ended_one_undone() -> Result<()> {
    let database = InMemory::new();
    let scoop = watchman(&database).await?;
    let start = database.now();
    let asleep = scoop.launch(Watch { fails: 0 }).await?;
    tokio::time::sleep(HOUR).await;
    assert_eq!(scoop.rollback(asleep.id(), "too early").await?, RollbackAnswer::StillRunning);
    assert_eq!(scoop.cancel(asleep.id(), "too late").await?, CancelAnswer::Accepted);
    assert!(matches!(asleep.wait().await?, Outcome::RolledBack(_)));
    assert!(database.now().duration_since(start)? < 2 * HOUR);

    let done = scoop.launch(Watch { fails: 0 }).await?;
    assert_eq!(done.wait().await?, Outcome::Committed);
    assert_eq!(scoop.rollback(done.id(), "came back").await?, RollbackAnswer::Accepted);
    assert!(matches!(done.wait().await?, Outcome::RolledBack(_)));
    assert_eq!(scoop.rollback(done.id(), "again").await?, RollbackAnswer::AlreadyRolledBack);
    assert_eq!(database.prune_finished(), 2);
    assert_eq!(database.event_log(), []);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_day_has_twenty_four_hours() -> Result<()> {
    let (database, ticks) = (InMemory::new(), Arc::<AtomicU32>::default());
    let hourly = Hourly { ticks: ticks.clone() };
    let scoop =
        Scoop::builder().in_memory_database(&database).only::<Hourly>().provide(hourly).start().await?;
    tokio::time::sleep(DAY + HOUR / 2).await;
    assert_eq!(ticks.load(Ordering::Relaxed), 24);
    assert_eq!(scoop.trigger::<Hourly>().await?.wait().await?, Outcome::Committed);
    assert_eq!(scoop.operate().schedules().trigger("hourly").await?.wait().await?, Outcome::Committed);
    assert_eq!(ticks.load(Ordering::Relaxed), 26);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn clock_put_forward_makes_later_runs_due() -> Result<()> {
    let database = InMemory::new();
    let scoop = watchman(&database).await?;
    let (watch, began) = (scoop.launch(Watch { fails: 0 }).await?, tokio::time::Instant::now());
    database.advance(DAY);
    assert_eq!(watch.wait().await?, Outcome::Committed);
    assert!(began.elapsed() < HOUR, "{:?}", began.elapsed());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unhandled_message_is_recorded() -> Result<()> {
    let database = InMemory::new();
    let client = Scoop::builder().in_memory_database(&database).client().await?;
    let launched = client.launch(Unsubscribed).unique("once").await?;
    assert_eq!(client.launch(Unsubscribed).unique("once").await?.id(), launched.id());
    assert_eq!(launched.wait().await?, Outcome::NoHandlers);
    let log = database.event_log();
    assert_eq!(log.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Emitted]);
    Ok(())
}
