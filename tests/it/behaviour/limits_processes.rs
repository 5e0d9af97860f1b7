//! Limits of how many runs of a saga are executed at once, in several processes, which die and are replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use scoop::HierarchyId;
use scoop::operate::WaitKind;

use super::*;
use crate::support::{Database, Gate, eventually, in_a_process_that_dies};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.task")]
struct Task;

/// Counts how many of its steps are in progress.
#[derive(Clone, Default)]
struct Tasks {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[saga(name = "limited-tasks", concurrency = 3)]
#[subscribes(Task)]
impl Tasks {
    #[step]
    async fn work(&self, scope: &mut Scope<'_>, _: &Task) -> Result<()> {
        self.most.fetch_max(1 + self.now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        sqlx::query("SELECT pg_sleep(0.002)").execute(scope.tx().await?).await?;
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The largest number of runs of a saga that were in execution at once, by its events.
async fn most_at_once(db: &Database) -> Result<i64> {
    let most = "
        WITH run AS (
            SELECT min(created_at) AS since, max(created_at) AS until FROM scoop.message_event
            WHERE coroutine_name = 'limited-tasks' GROUP BY message_id
        )
        SELECT max((SELECT count(*) FROM run other WHERE other.since <= run.since AND other.until >= run.since)) FROM run";
    Ok(sqlx::query_scalar(most).fetch_one(db.pool()).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_execute_no_more_than_the_limit() -> Result<()> {
    let (db, tasks) = (Database::new().await, Tasks::default());
    let start = || db.scoop().only::<Tasks>().provide(tasks.clone()).start();
    let (one, two, three) = tokio::try_join!(start(), start(), start())?;
    let mut all = vec![];
    for nth in 0..120 {
        all.push([&one, &two, &three][nth % 3].launch(Task).await?);
    }
    for task in all {
        assert_eq!(task.ends().await?, Outcome::Committed);
    }
    assert_eq!(tasks.most.load(Ordering::SeqCst), 3, "steps at once: the limit, and no more");
    assert_eq!(most_at_once(&db).await?, 3);
    for scoop in [one, two, three] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.ping")]
struct Ping;

#[derive(Default)]
struct Pings;

#[saga(name = "limited-pings", rate("20/200ms"))]
#[subscribes(Ping)]
impl Pings {
    #[step]
    async fn send(&self, _: &mut Scope<'_>, _: &Ping) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.pong")]
struct Pong {
    host: usize,
}

#[derive(Default)]
struct Pongs;

#[saga(name = "limited-pongs", rate("5/200ms", by = host))]
#[subscribes(Pong)]
impl Pongs {
    #[step]
    async fn send(&self, _: &mut Scope<'_>, _: &Pong) -> Result<()> {
        Ok(())
    }
}

/// The runs of a saga, or of each value of a field, with which more than so many began within 200 ms.
async fn over_the_rate(db: &Database, saga: &str, most: i64) -> Result<i64> {
    let count = "
        WITH begun AS (
            SELECT e.created_at, coalesce(m.payload ->> 'host', '') AS key
            FROM scoop.message_event e
            JOIN scoop.message m ON m.id = e.message_id
            WHERE e.coroutine_name = $1 AND e.type = 'SEEN'
        )
        SELECT count(*) FROM begun WHERE $2 < (
            SELECT count(*) FROM begun other
            WHERE other.key = begun.key AND other.created_at >= begun.created_at
              AND other.created_at < begun.created_at + interval '200 ms')";
    Ok(sqlx::query_scalar(count).bind(saga).bind(most).fetch_one(db.pool()).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_begin_no_more_runs_than_the_rate_admits() -> Result<()> {
    let db = Database::new().await;
    let start = || db.scoop().only::<Pings>().only::<Pongs>().concurrency(8).start();
    let (one, two, three) = tokio::try_join!(start(), start(), start())?;
    let mut all = vec![];
    for nth in 0..90 {
        let scoop = [&one, &two, &three][nth % 3];
        all.push(scoop.launch(Ping).await?);
        all.push(scoop.launch(Pong { host: [0, 0, 1, 2][nth % 4] }).await?);
    }
    for run in all {
        assert_eq!(run.ends().await?, Outcome::Committed);
    }
    assert_eq!(over_the_rate(&db, "limited-pings", 20).await?, 0);
    assert_eq!(over_the_rate(&db, "limited-pongs", 5).await?, 0);
    for scoop in [one, two, three] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_without_runs_in_the_period_leave_no_rows() -> Result<()> {
    let db = Database::new().await;
    let start = || db.scoop().only::<Pongs>().poll_interval(Duration::from_secs(3_600)).start();
    let first = start().await?;
    for pong in first.launch_all((0..100).map(|nth| Pong { host: nth % 20 })).await? {
        assert_eq!(pong.ends().await?, Outcome::Committed);
    }
    first.shutdown().await?;
    let rows = async |more: &str| -> Result<i64> {
        let count = format!("SELECT count(*) FROM scoop.rate_window WHERE key <> '20' {more}");
        Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(db.pool()).await?)
    };
    assert_ne!(rows("").await?, 0);
    eventually("the period is over", async || {
        rows("AND idle_at > clock_timestamp()").await.is_ok_and(|rows| rows == 0)
    })
    .await;
    // Its first claim goes through all keys.
    let second = start().await?;
    assert_eq!(second.launch(Pong { host: 20 }).await?.ends().await?, Outcome::Committed);
    assert_eq!(rows("").await?, 0);
    second.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_runs_of_a_process_that_died_begin_when_their_rate_admits_them() -> Result<()> {
    let db = Database::new().await;
    let launched: Vec<HierarchyId> = in_a_process_that_dies(&db, |builder: scoop::Builder| async move {
        let scoop = builder.only::<Pongs>().poll_interval(Duration::from_secs(3_600)).start().await?;
        let mut launched = vec![];
        for _ in 0..8 {
            launched.push(scoop.launch(Pong { host: 1 }).await?.id());
        }
        Ok((scoop, launched))
    })
    .await?;
    let scoop = db.scoop().only::<Pongs>().poll_interval(Duration::from_secs(3_600)).start().await?;
    for id in launched {
        assert_eq!(scoop.find(id).await?.ends().await?, Outcome::Committed);
    }
    assert_eq!(over_the_rate(&db, "limited-pongs", 5).await?, 0);
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.visit")]
struct Visit {
    house: usize,
}

/// Counts how many of its steps are in progress at each house.
#[derive(Clone, Default)]
struct Visits {
    houses: [Tasks; 3],
}

#[saga(name = "limited-visits", concurrency(2, by = house))]
#[subscribes(Visit)]
impl Visits {
    #[step]
    async fn stay(&self, scope: &mut Scope<'_>, visit: &Visit) -> Result<()> {
        self.houses[visit.house].work(scope, &Task).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_execute_no_more_than_the_limit_of_each_key() -> Result<()> {
    let (db, visits) = (Database::new().await, Visits::default());
    let start = || db.scoop().only::<Visits>().provide(visits.clone()).concurrency(16).start();
    let (one, two, three) = tokio::try_join!(start(), start(), start())?;
    let mut all = vec![];
    for nth in 0..150 {
        // More than half of them are at one house.
        let house = [0, 0, 1, 0, 2][nth % 5];
        all.push([&one, &two, &three][nth % 3].launch(Visit { house }).await?);
    }
    for visit in all {
        assert_eq!(visit.ends().await?, Outcome::Committed);
    }
    for house in &visits.houses {
        assert_eq!(house.most.load(Ordering::SeqCst), 2, "steps at once: the limit, and no more");
    }
    for scoop in [one, two, three] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn place_that_a_stopping_process_leaves_goes_to_another_without_polling() -> Result<()> {
    let (db, gate, other) = (Database::new().await, Gate::default(), Gate::default());
    let start = |gate: &Gate| {
        let loads = db.scoop().only::<KeyedLoads>().provide(KeyedLoads { gate: gate.clone() });
        loads.poll_interval(Duration::from_secs(3_600)).start()
    };
    let stops = start(&gate).await?;
    stops.launch(KeyedLoad { dock: 1 }).await?;
    gate.arrivals(1).await;
    let second = stops.launch(KeyedLoad { dock: 1 }).await?.id();
    let helper = start(&other).await?;
    eventually("the second waits", async || {
        waiting_for_the_limit(&helper).await.is_ok_and(|count| count == 1)
    })
    .await;
    let mut stopping = Box::pin(stops.shutdown());
    assert!(stopping.as_mut().now_or_never().is_none());
    gate.open(1);
    stopping.await?;
    other.arrivals(1).await;
    other.open(1);
    assert_eq!(helper.find(second).await?.ends().await?, Outcome::Committed);
    helper.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.keyed_load")]
struct KeyedLoad {
    dock: u32,
}

/// Stops in its step.
#[derive(Default)]
struct KeyedLoads {
    gate: Gate,
}

#[saga(name = "limited-docks", concurrency(1, by = dock))]
#[subscribes(KeyedLoad)]
impl KeyedLoads {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, _: &KeyedLoad) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_process_that_died_leave_the_places_of_their_keys_to_others() -> Result<()> {
    let db = Database::new().await;
    let launched: Vec<HierarchyId> = in_a_process_that_dies(&db, |builder: scoop::Builder| async move {
        let gate = Gate::default();
        let scoop = builder.only::<KeyedLoads>().provide(KeyedLoads { gate: gate.clone() }).start().await?;
        let mut launched = vec![];
        for dock in [1, 1, 2] {
            launched.push(scoop.launch(KeyedLoad { dock }).await?.id());
        }
        gate.arrivals(2).await;
        Ok((scoop, launched))
    })
    .await?;
    let gate = Gate::default();
    let scoop = db.scoop().only::<KeyedLoads>().provide(KeyedLoads { gate: gate.clone() }).start().await?;
    gate.arrivals(2).await;
    assert_eq!(gate.arrived(), 0, "no more than the limit");
    gate.open(3);
    for id in launched {
        assert_eq!(scoop.find(id).await?.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.load")]
struct Load;

/// Stops in its step.
#[derive(Default)]
struct Loads {
    gate: Gate,
}

#[saga(name = "limited-loads", concurrency = 2)]
#[subscribes(Load)]
impl Loads {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, _: &Load) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }
}

/// The same saga in a newer program.
#[derive(Default)]
struct NarrowLoads {
    gate: Gate,
}

#[saga(name = "limited-loads", concurrency = 1)]
#[subscribes(Load)]
impl NarrowLoads {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, _: &Load) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }
}

/// The same saga without a limit.
#[derive(Default)]
struct FreeLoads {
    gate: Gate,
}

#[saga(name = "limited-loads")]
#[subscribes(Load)]
impl FreeLoads {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, _: &Load) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }
}

async fn waiting_for_the_limit(scoop: &Scoop) -> Result<usize> {
    Ok(scoop.operate().runs().list().waiting_for(WaitKind::Limit).await?.runs.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_process_that_died_leave_their_places_to_others() -> Result<()> {
    let db = Database::new().await;
    let launched: Vec<HierarchyId> = in_a_process_that_dies(&db, |builder: scoop::Builder| async move {
        let gate = Gate::default();
        let scoop = builder.only::<Loads>().provide(Loads { gate: gate.clone() }).start().await?;
        let mut launched = vec![];
        for _ in 0..3 {
            launched.push(scoop.launch(Load).await?.id());
        }
        gate.arrivals(2).await;
        Ok((scoop, launched))
    })
    .await?;
    let gate = Gate::default();
    let scoop = db.scoop().only::<Loads>().provide(Loads { gate: gate.clone() }).start().await?;
    gate.arrivals(2).await;
    assert_eq!(gate.arrived(), 0, "no more than the limit");
    gate.open(3);
    for id in launched {
        assert_eq!(scoop.find(id).await?.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_that_started_last_decides_for_all() -> Result<()> {
    let (db, gate, newer) = (Database::new().await, Gate::default(), Gate::default());
    let old = db.scoop().only::<Loads>().provide(Loads { gate: gate.clone() }).start().await?;
    let mut all = vec![];
    for _ in 0..3 {
        all.push(old.launch(Load).await?);
    }
    gate.arrivals(2).await;
    let narrow = db.scoop().only::<NarrowLoads>().provide(NarrowLoads { gate: newer.clone() });
    let narrow = narrow.start().await?;
    gate.open(1);
    // Two runs were in execution, now one: as many as the newer limit admits.
    eventually("one has ended", async || {
        old.operate()
            .runs()
            .list()
            .state(scoop::RunPhase::Running)
            .await
            .is_ok_and(|page| page.runs.len() == 1)
    })
    .await;
    assert_eq!(waiting_for_the_limit(&narrow).await?, 1);
    assert_eq!((gate.arrived(), newer.arrived()), (0, 0));
    let free = db.scoop().only::<FreeLoads>().provide(FreeLoads { gate: newer.clone() });
    let free = free.start().await?;
    all.push(free.launch(Load).await?);
    eventually("all are in execution", async || {
        old.operate()
            .runs()
            .list()
            .state(scoop::RunPhase::Running)
            .await
            .is_ok_and(|page| page.runs.len() == 3)
    })
    .await;
    gate.open(3);
    newer.open(3);
    for load in all {
        assert_eq!(load.ends().await?, Outcome::Committed);
    }
    for scoop in [old, narrow, free] {
        scoop.shutdown().await?;
    }
    Ok(())
}

/// A saga without a limit goes on while the limit of another one is reached.
#[tokio::test(flavor = "multi_thread")]
async fn backlog_of_a_limited_saga_delays_no_other() -> Result<()> {
    let (db, gate, tasks) = (Database::new().await, Gate::default(), Tasks::default());
    let scoop = db.scoop().only::<Loads>().only::<Tasks>().provide(tasks.clone()).concurrency(4);
    let scoop = scoop.provide(Loads { gate: gate.clone() }).poll_interval(Duration::from_secs(3_600));
    let scoop = scoop.start().await?;
    let mut loads = vec![];
    for _ in 0..20 {
        loads.push(scoop.launch(Load).await?);
    }
    gate.arrivals(2).await;
    for _ in 0..10 {
        assert_eq!(scoop.launch(Task).await?.ends().await?, Outcome::Committed);
    }
    gate.open(20);
    for load in loads {
        assert_eq!(load.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.crate")]
struct Crate {
    customer: u32,
}

/// Stops in its step. Its runs are of different customers, so that no limit is reached.
#[derive(Default)]
struct Crates {
    gate: Gate,
}

#[saga(name = "limited-crates", concurrency(1, by = customer))]
#[subscribes(Crate)]
impl Crates {
    #[step]
    async fn lift(&self, _: &mut Scope<'_>, _: &Crate) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }
}

/// A program with two sagas with limits and two slots, and the gates of both.
fn two_slots(db: &Database) -> (scoop::Builder, Gate, Gate) {
    let (loads, crates) = (Gate::default(), Gate::default());
    let program = db.scoop().only::<Loads>().only::<Crates>().concurrency(2);
    let program = program.provide(Loads { gate: loads.clone() }).provide(Crates { gate: crates.clone() });
    (program, loads, crates)
}

#[tokio::test(flavor = "multi_thread")]
async fn backlogs_of_limited_sagas_share_the_slots() -> Result<()> {
    let db = Database::new().await;
    // So that the subscriptions are known, and both backlogs are there from the beginning.
    two_slots(&db).0.start().await?.shutdown().await?;
    let (client, mut launched) = (db.client(), vec![]);
    for customer in 0..20 {
        launched.push(client.launch(Crate { customer }).await?);
        launched.push(client.launch(Load).await?);
    }
    let (program, loads, crates) = two_slots(&db);
    let scoop = program.start().await?;
    crates.arrivals(1).await;
    loads.arrivals(1).await;
    for _ in 0..5 {
        loads.open(1);
        loads.arrivals(1).await;
    }
    assert_eq!(crates.arrived(), 0, "a freed slot is for the saga with fewer runs");
    loads.open(20);
    crates.open(20);
    for one in launched {
        assert_eq!(one.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_a_limited_saga_begins_while_the_backlog_of_another_lasts() -> Result<()> {
    let db = Database::new().await;
    let (program, loads, crates) = two_slots(&db);
    let scoop = program.start().await?;
    for customer in 0..10 {
        scoop.launch(Crate { customer }).await?;
    }
    crates.arrivals(2).await;
    let (load, mut customer) = (scoop.launch(Load).await?, 10);
    eventually("the load begins", async || {
        // For each crate that ends there is a new one.
        let launched = scoop.launch(Crate { customer }).await;
        customer += 1;
        crates.open(1);
        launched.is_ok() && loads.arrived() == 1
    })
    .await;
    loads.open(1);
    assert_eq!(load.ends().await?, Outcome::Committed);
    crates.open(20);
    scoop.shutdown().await?;
    Ok(())
}
