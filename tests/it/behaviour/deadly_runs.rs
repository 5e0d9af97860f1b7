//! A run that ends each process that executes it: the pauses between its attempts, their end, and the runs beside it.

use std::time::{Duration, Instant};

use scoop::Priority;

use super::*;
use crate::support::{Database, Gate, eventually, in_a_process_that_dies};

/// How many processes may end in a row.
const ATTEMPTS: u32 = 12;

handler! {
    Deadly(gate): "deadly" on Root;
    step "execute" execute => at_gate();
}

handler! {
    Bystander: "bystander" on Child;
    step "execute" execute => done();
}

async fn start(builder: scoop::Builder, gate: &Gate) -> Result<Scoop> {
    Ok(builder.only::<Deadly>().provide(Deadly { gate: gate.clone() }).start().await?)
}

/// A process that ends while it executes this number of runs.
async fn die_with(db: &Database, runs: u32) -> Result<()> {
    in_a_process_that_dies(db, move |builder: scoop::Builder| async move {
        let gate = Gate::default();
        let scoop = start(builder, &gate).await?;
        gate.arrivals(runs).await;
        Ok((scoop, ()))
    })
    .await
}

/// The pause before the next attempt, in milliseconds, once the run is free.
async fn pause_of_the_free_run(db: &Database) -> i64 {
    let free = "SELECT count(*) FROM scoop.run WHERE handler = 'deadly' AND owner IS NULL";
    eventually("the run is free", async || db.number(free).await == 1).await;
    db.number(
        "SELECT (1000 * extract(epoch FROM ready_at - clock_timestamp()))::bigint
         FROM scoop.run WHERE handler = 'deadly'",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_ends_each_of_its_processes_backs_off_and_is_stuck() -> Result<()> {
    let db = Database::new().await;
    start(db.scoop(), &Gate::default()).await?.shutdown().await?;
    let observer = db.scoop().poll_interval(Duration::from_millis(50)).only::<Bystander>().start().await?;
    let root = observer.launch(Root).await?;

    let mut pauses = vec![];
    for attempt in 1..=ATTEMPTS {
        // As after another failure in between, from time to time.
        let reason = if attempt % 3 == 0 { "'another failure'" } else { "reason" };
        db.execute(&format!(
            "UPDATE scoop.run SET ready_at = clock_timestamp(), reason = {reason} WHERE handler = 'deadly'"
        ))
        .await;
        die_with(&db, 1).await?;
        let pause = pause_of_the_free_run(&db).await;
        if attempt < ATTEMPTS {
            pauses.push(pause);
        }
    }
    assert!(pauses[0] <= 0, "the first pause: {} ms", pauses[0]);
    for (pause, planned) in pauses[6..].iter().zip([3_200, 6_400, 12_800, 25_600, 30_000]) {
        assert!(*pause <= planned * 3 / 2 && *pause > planned * 2 / 5, "{pauses:?} ms");
    }

    let stuck = observer.operate().failures().stuck().await?;
    assert_eq!(stuck.len(), 1);
    assert!(stuck[0].reason.contains("the worker ended"), "{}", stuck[0].reason);
    assert!(stuck[0].reason.contains("operate().failures().retry"), "{}", stuck[0].reason);
    assert!(stuck[0].needs_retry);
    let explained = observer.operate().runs().explain(root.id()).await?.to_string();
    let way_out = format!("An operator has to decide: `retry` the run {}.", stuck[0].id());
    assert!(explained.contains(&way_out), "{explained}");

    // A program that starts leaves it as it is.
    let gate = Gate::default();
    gate.open(1);
    let scoop = start(db.scoop(), &gate).await?;
    assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
    assert_eq!(observer.operate().failures().stuck().await?.len(), 1);

    gate.open(1);
    observer.operate().failures().retry(stuck[0].id()).await?;
    let ended = tokio::time::timeout(Duration::from_secs(20), root.ends());
    assert_eq!(ended.await.expect("an operator has retried it")?, Outcome::Committed);
    scoop.shutdown().await?;
    observer.shutdown().await.map_err(Into::into)
}

/// Runs that were hit by another run's crash, too, and then a new one.
#[tokio::test(flavor = "multi_thread")]
async fn suspects_are_executed_one_at_a_time_and_hold_up_no_other_run() -> Result<()> {
    const SUSPECTS: u32 = 5;
    let db = Database::new().await;
    start(db.scoop(), &Gate::default()).await?.shutdown().await?;
    let observer = db.scoop().poll_interval(Duration::from_millis(50)).only::<Bystander>().start().await?;
    let launched = observer.launch_all((0..SUSPECTS).map(|_| Root)).await?;
    for _ in 1..=2 {
        die_with(&db, SUSPECTS).await?;
        let free = "SELECT count(*) FROM scoop.run WHERE handler = 'deadly' AND owner IS NULL";
        eventually("the runs are free", async || db.number(free).await == i64::from(SUSPECTS)).await;
    }

    let gate = Gate::default();
    let scoop = start(db.scoop(), &gate).await?;
    // The first attempt of a run is beside a suspect.
    let new = scoop.launch(Root).await?;
    gate.arrivals(2).await;
    let running_suspects = "SELECT count(*) FROM scoop.run WHERE handler = 'deadly' AND state = 'running' AND (tries).unknown_attempts >= 2";
    assert_eq!(db.number(running_suspects).await, 1);
    gate.open(2);
    for _ in 1..SUSPECTS {
        gate.arrivals(1).await;
        assert_eq!((db.number(running_suspects).await, gate.arrived()), (1, 0));
        gate.open(1);
    }
    for run in launched.into_iter().chain([new]) {
        assert_eq!(run.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    observer.shutdown().await.map_err(Into::into)
}

/// Marks the ready runs as suspects.
const SUSPECT: &str = "UPDATE scoop.run SET tries = ROW(2, 0, 2, NULL) WHERE handler = 'deadly'";

#[tokio::test(flavor = "multi_thread")]
async fn suspects_follow_each_other_without_a_pause() -> Result<()> {
    const SUSPECTS: usize = 200;
    let (db, gate) = (Database::new().await, Gate::default());
    start(db.scoop(), &gate).await?.shutdown().await?;
    let client = db.scoop().client().await?;
    let launched = client.launch_all((0..SUSPECTS).map(|_| Root)).await?;
    db.execute(SUSPECT).await;
    gate.open(SUSPECTS);
    let scoop = start(db.scoop(), &gate).await?;
    for run in launched {
        assert_eq!(run.ends().await?, Outcome::Committed);
    }
    // With a pause of 100 ms after each run, all intervals are longer. The load of the machine makes some of them longer, too.
    let fast = "
        SELECT count(*) FROM (
            SELECT created_at - lag(created_at) OVER (ORDER BY created_at) AS interval FROM scoop.message_event
            WHERE type = 'COMMITTED' AND coroutine_name = 'deadly'
        ) runs
        WHERE interval < '100 ms'";
    let fast = db.number(fast).await;
    assert!(fast >= i64::try_from(SUSPECTS / 10)?, "{fast} intervals are shorter than 100 ms");
    scoop.shutdown().await.map_err(Into::into)
}

#[tokio::test(flavor = "multi_thread")]
async fn suspects_of_each_priority_are_executed() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    start(db.scoop(), &gate).await?.shutdown().await?;
    let client = db.scoop().client().await?;
    let mut launched = vec![];
    for priority in [Priority::High, Priority::Low, Priority::Normal] {
        launched.push(client.launch(Root).priority(priority).await?);
    }
    db.execute(SUSPECT).await;
    gate.open(3);
    let scoop = start(db.scoop(), &gate).await?;
    for run in launched {
        assert_eq!(run.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await.map_err(Into::into)
}

#[tokio::test(flavor = "multi_thread")]
async fn suspect_that_takes_long_holds_up_others_for_a_time_only() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    start(db.scoop(), &gate).await?.shutdown().await?;
    let client = db.scoop().client().await?;
    let launched = client.launch_all((0..2).map(|_| Root)).await?;
    db.execute(SUSPECT).await;
    let begin = Instant::now();
    let scoop = start(db.scoop(), &gate).await?;
    gate.arrivals(2).await;
    assert!(begin.elapsed() >= Duration::from_secs(10), "{:?}", begin.elapsed());
    gate.open(2);
    for run in launched {
        assert_eq!(run.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await.map_err(Into::into)
}
