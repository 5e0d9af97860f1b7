//! Runs that begin in the process that launched them, without a claim.

use std::time::Duration;

use super::*;
use crate::support::{Database, Gate, eventually};

handler! {
    #[derive(Default)]
    Here(gate): "here" on Root;
    step "arrive" arrive => at_gate();
}

handler! {
    #[derive(Default)]
    Elsewhere(gate): "elsewhere" on Root;
    step "arrive" arrive => at_gate();
}

/// Makes all claims fail from now on.
async fn forbid_claims(db: &Database) {
    db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no claim is allowed'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON scoop.run FOR EACH ROW
             WHEN (old.state = 'ready' AND new.state = 'running') EXECUTE FUNCTION refuse()",
    )
    .await;
}

/// A program that claims only when notified, with so many slots.
fn program(db: &Database, gate: &Gate, concurrency: usize) -> scoop::Builder {
    let scoop = db.scoop().only::<Here>().provide(Here { gate: gate.clone() });
    scoop.concurrency(concurrency).poll_interval(Duration::from_secs(3600))
}

/// More than a claim takes, so that some are free in any case.
const ENOUGH: usize = 300;

const READY: &str = "SELECT count(*) FROM scoop.run WHERE state = 'ready' AND owner IS NULL AND epoch = 0";

#[tokio::test(flavor = "multi_thread")]
async fn run_launched_here_begins_without_a_claim() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = program(&db, &gate, ENOUGH).start().await?;
    forbid_claims(&db).await;
    gate.open(3);
    let root = scoop.launch(Root).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    for root in scoop.launch_all([Root, Root]).await? {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN here ·
        M0 SUSPENDED here arrive
        M0 COMMITTED here arrive",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_begin_than_there_are_slots() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = program(&db, &gate, 2).start().await?;
    let roots = scoop.launch_all((0..5).map(|_| Root)).await?;
    gate.arrivals(2).await;
    assert_eq!((db.number(READY).await, gate.arrived()), (3, 0));
    gate.open(5);
    for root in roots {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    Ok(())
}

/// A message launched before is not begun again, and holds no slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_was_made_before_begins_nothing() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = program(&db, &gate, 2).start().await?;
    let first = scoop.launch(Root).unique("one").await?;
    gate.arrivals(1).await;
    for _ in 0..3 {
        assert_eq!(scoop.launch(Root).unique("one").await?.id(), first.id());
    }
    let other = scoop.launch(Root).unique("other").await?;
    gate.arrivals(1).await;
    assert_eq!(gate.arrived(), 0);
    gate.open(2);
    assert_eq!(first.ends().await?, Outcome::Committed);
    assert_eq!(other.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_message_waits_for_its_time() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = program(&db, &gate, ENOUGH).start().await?;
    let later = scoop.launch(Root).delay(Duration::from_secs(3600)).await?;
    let limited = scoop.launch(Root).deadline(Duration::from_secs(3600)).await?;
    gate.arrivals(1).await;
    gate.open(1);
    assert_eq!(limited.ends().await?, Outcome::Committed);
    assert_eq!(later.tree().await?.roots()[0].state, RunState::Pending);
    Ok(())
}

/// Asserts that both handlers begin their runs, and that the hierarchy ends with the later one.
async fn is_over_when_both_are(db: &Database, scoop: &Scoop, here: &Gate, elsewhere: &Gate) -> Result<()> {
    let root = scoop.launch(Root).await?;
    let waiting = tokio::spawn({
        let root = root.clone();
        async move { root.ends().await }
    });
    here.arrivals(1).await;
    elsewhere.arrivals(1).await;
    here.open(1);
    eventually("one has committed", async || db.history().await.count("COMMITTED") == 1).await;
    // A notification of the first end would have arrived by the time another run is launched and
    // over.
    let another = scoop.launch(Root).await?;
    here.open(1);
    elsewhere.arrivals(1).await;
    eventually("another has, too", async || db.history().await.count("COMMITTED") == 2).await;
    assert!(!waiting.is_finished(), "it is not over");
    elsewhere.open(2);
    assert_eq!(waiting.await??, Outcome::Committed);
    assert_eq!(another.ends().await?, Outcome::Committed);
    assert_eq!(db.history().await.count("COMMITTED"), 4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_also_for_handlers_of_other_programs() -> Result<()> {
    let db = Database::new().await;
    let (here, elsewhere) = (Gate::default(), Gate::default());
    let other = Scoop::builder().postgres(db.another_pool(5).await).only::<Elsewhere>();
    let other = other.provide(Elsewhere { gate: elsewhere.clone() });
    let _other = other.poll_interval(Duration::from_secs(3600)).start().await?;
    let scoop = program(&db, &here, ENOUGH).start().await?;
    is_over_when_both_are(&db, &scoop, &here, &elsewhere).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_for_all_handlers_of_a_program() -> Result<()> {
    let db = Database::new().await;
    let (here, elsewhere) = (Gate::default(), Gate::default());
    let scoop = program(&db, &here, ENOUGH).only::<Elsewhere>();
    let scoop = scoop.provide(Elsewhere { gate: elsewhere.clone() }).start().await?;
    is_over_when_both_are(&db, &scoop, &here, &elsewhere).await
}

/// The future of a launch may be dropped at any moment once it was polled.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_launch_takes_effect() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = program(&db, &gate, ENOUGH).start().await?;
    for millis in 0..20 {
        let launch = std::future::IntoFuture::into_future(scoop.launch(Root));
        let _ = tokio::time::timeout(Duration::from_micros(millis * 200), launch).await;
    }
    gate.arrivals(20).await;
    gate.open(20);
    eventually("all are done", async || db.history().await.count("COMMITTED") == 20).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_program_begins_nothing() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = program(&db, &gate, ENOUGH).start().await?;
    let held = scoop.launch(Root).await?;
    gate.arrivals(1).await;
    let _ = tokio::time::timeout(Duration::from_millis(1), scoop.shutdown()).await;
    scoop.launch(Root).await?;
    gate.open(1);
    scoop.shutdown().await?;
    assert_eq!(held.ends().await?, Outcome::Committed);
    // A claim that was under way may have taken it; then it was given back.
    let ready = db.number("SELECT count(*) FROM scoop.run WHERE state = 'ready'").await;
    assert_eq!((ready, gate.arrived()), (1, 0));
    Ok(())
}

/// The launch is under way during the shutdown. Its run is left to other programs.
#[tokio::test(flavor = "multi_thread")]
async fn run_launched_in_the_moment_of_the_stop_is_left_to_others() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = program(&db, &gate, ENOUGH).start().await?;
    let mut tx = db.pool().begin().await?;
    sqlx::query("LOCK TABLE scoop.run IN EXCLUSIVE MODE").execute(&mut *tx).await?;
    let launching = tokio::spawn({
        let scoop = scoop.clone();
        async move { scoop.launch(Root).await }
    });
    let held_up = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'scoop.run'::regclass";
    eventually("the launch is held up", async || db.number(held_up).await > 0).await;
    let _ = tokio::time::timeout(Duration::from_millis(1), scoop.shutdown()).await;
    tx.commit().await?;
    let root = launching.await??;
    scoop.shutdown().await?;
    assert_eq!(gate.arrived(), 0, "a step was begun");

    gate.open(1);
    let heir = program(&db, &gate, 2).start().await?;
    assert_eq!(heir.find(root.id()).await?.ends().await?, Outcome::Committed);
    Ok(())
}

/// An unregistered worker (presumed dead) owns no runs.
#[tokio::test(flavor = "multi_thread")]
async fn run_launched_by_an_unregistered_worker_is_left_to_others() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = program(&db, &gate, ENOUGH).start().await?;
    db.execute("DELETE FROM scoop.worker").await;
    let root = scoop.launch(Root).await?;
    assert_eq!((db.number(READY).await, gate.arrived()), (1, 0));
    gate.open(1);
    let heir = Scoop::builder().postgres(db.another_pool(5).await).only::<Here>();
    let heir = heir.provide(Here { gate: gate.clone() }).start().await?;
    assert_eq!(heir.find(root.id()).await?.ends().await?, Outcome::Committed);
    Ok(())
}
