//! Pauses for new runs only: begun runs finish, others wait; and drains.

use std::time::Duration;

use scoop::operate::{WaitKind, WaitReason};
use scoop::pauses::PauseTarget;

use super::*;
use crate::support::{Database, Gate, Notes, eventually, takes};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

/// Longer than any step of these tests.
const LONG: Duration = Duration::from_secs(60);

/// The number of parked runs.
const PARKED: &str = "SELECT count(*) FROM scoop.run WHERE parked_since IS NOT NULL";

/// How many parcels follow from it, one after the other.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "new-runs.parcel")]
struct Parcel {
    name: String,
    rest: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "new-runs.order")]
struct Order;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "new-runs.bill")]
struct Bill(String);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "new-runs.letter")]
struct Letter {
    house: String,
    text: String,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "new-runs.paid")]
struct Paid;

fn parcel(name: &str, rest: u32) -> Parcel {
    Parcel { name: name.into(), rest }
}

fn letter(house: &str, text: &str) -> Letter {
    Letter { house: house.into(), text: text.into() }
}

#[derive(Clone, Default)]
struct Orders {
    gate: Gate,
    notes: Notes,
}

#[saga(name = "new-runs-orders")]
#[subscribes(Order)]
impl Orders {
    #[step]
    async fn pack(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
        self.gate.pass().await;
        scope.launch(parcel("of the order", 0)).await?;
        Ok(())
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        self.notes.add("close");
        Ok(())
    }
}

/// Launches the next parcel of the same saga.
#[derive(Clone, Default)]
struct Parcels {
    gate: Gate,
    notes: Notes,
}

#[saga(name = "new-runs-parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step]
    async fn load(&self, scope: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        self.notes.add(&*parcel.name);
        self.gate.pass().await;
        if let Some(rest) = parcel.rest.checked_sub(1) {
            scope.launch(Parcel { name: parcel.name.clone(), rest }).await?;
        }
        Ok(())
    }

    #[step]
    async fn deliver(&self, _: &mut Scope<'_>, _: &Parcel) -> Result<()> {
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Bills;

#[saga(name = "new-runs-bills")]
#[subscribes(Bill)]
impl Bills {
    #[step(awaits(Paid, by = key))]
    async fn pay(&self, _: &mut Scope<'_>, _: &Bill, _: &Paid) -> Result<()> {
        Ok(())
    }

    async fn key(&self, _: &mut Scope<'_>, bill: &Bill) -> Result<String> {
        Ok(bill.0.clone())
    }
}

/// One letter at a time goes to each house.
#[derive(Clone, Default)]
struct Letters {
    gate: Gate,
    notes: Notes,
}

#[saga(name = "new-runs-letters", concurrency(1, by = house))]
#[subscribes(Letter)]
impl Letters {
    #[step]
    async fn bring(&self, _: &mut Scope<'_>, letter: &Letter) -> Result<()> {
        self.notes.add(&*letter.text);
        self.gate.pass().await;
        Ok(())
    }
}

/// Of each house one letter is under way until its run ends.
#[derive(Clone, Default)]
struct Copies {
    gate: Gate,
    notes: Notes,
}

#[saga(name = "new-runs-copies", serial(by = house))]
#[subscribes(Letter)]
impl Copies {
    #[step]
    async fn copy(&self, _: &mut Scope<'_>, letter: &Letter) -> Result<()> {
        self.notes.add(&*letter.text);
        self.gate.pass().await;
        Ok(())
    }

    #[step]
    async fn file(&self, _: &mut Scope<'_>, _: &Letter) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Office {
    orders: Orders,
    parcels: Parcels,
    letters: Letters,
    copies: Copies,
}

impl Office {
    async fn start(&self, db: &Database) -> Result<Scoop> {
        let scoop = db.scoop().only::<Orders>().only::<Parcels>().only::<Bills>().poll_interval(NEVER);
        let scoop = scoop.provide(self.orders.clone()).provide(self.parcels.clone()).provide(Bills);
        Ok(scoop.start().await?)
    }

    /// A process with the sagas that have limits.
    async fn start_limited(&self, db: &Database) -> Result<Scoop> {
        let scoop = db.scoop().only::<Letters>().only::<Copies>().poll_interval(NEVER);
        Ok(scoop.provide(self.letters.clone()).provide(self.copies.clone()).start().await?)
    }
}

fn parcels() -> PauseTarget {
    PauseTarget::saga::<Parcels>()
}

fn is_pending(tree: &Tree) -> bool {
    tree.roots().iter().all(|run| run.state == RunState::Pending && !run.pauses.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn begun_runs_finish_and_new_ones_wait() -> Result<()> {
    let (db, office) = (Database::new().await, Office::default());
    let scoop = office.start(&db).await?;
    let (order, bill) = (scoop.launch(Order).await?, scoop.launch(Bill("one".into())).await?);
    office.orders.gate.arrivals(1).await;
    bill.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal)).await?;
    for target in [PauseTarget::saga::<Orders>(), PauseTarget::topic("new-runs.bill")] {
        let paused = scoop
            .operate()
            .pauses()
            .pause(target)
            .new_runs_only()
            .reason("stocktaking")
            .source("ann")
            .await?;
        assert!(
            paused.in_force && paused.pause.new_runs_only && paused.unacknowledged.is_empty(),
            "{paused}"
        );
        assert!(paused.runs_left == Some(1) && !paused.is_drained(), "{paused}");
        assert!(paused.to_string().contains(" is paused for new runs only by ann since "), "{paused}");
    }
    let late = db.client().launch(Order).await?;
    let late_bill = scoop.launch(Bill("two".into())).await?;
    office.orders.gate.open(2);
    office.parcels.gate.open(2);
    assert_eq!(order.ends().await?, Outcome::Committed);
    assert_eq!(scoop.signal(Paid, "one").await?, 1);
    assert_eq!(bill.ends().await?, Outcome::Committed);
    assert_eq!(office.orders.notes.all(), ["close"]);

    for handle in [&late, &late_bill] {
        handle.comes_to(is_pending).await?;
        let run = scoop.operate().runs().explain(handle.id()).await?.runs.remove(0);
        assert!(matches!(run.reason, WaitReason::Pause { .. }), "{run}");
        assert!(run.to_string().contains("is paused for new runs only by ann"), "{run}");
    }
    assert_eq!(scoop.operate().runs().list().waiting_for(WaitKind::Pause).await?.runs.len(), 2);
    scoop.operate().pauses().resume(PauseTarget::saga::<Orders>()).await?;
    scoop.operate().pauses().resume(PauseTarget::topic("new-runs.bill")).await?;
    assert_eq!(late.ends().await?, Outcome::Committed);
    late_bill.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal)).await?;
    assert!(scoop.operate().pauses().ended().limit(2).await?.iter().all(|ended| ended.pause.new_runs_only));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_below_a_begun_run_pass_and_the_drain_ends_with_them() -> Result<()> {
    let (db, office) = (Database::new().await, Office::default());
    let scoop = office.start(&db).await?;
    let order = scoop.launch(Order).await?;
    // Each parcel waits for the next one, of the same saga.
    let chain = scoop.launch(parcel("chain", 2)).await?;
    office.orders.gate.arrivals(1).await;
    office.parcels.gate.arrivals(1).await;
    for target in [PauseTarget::saga::<Orders>(), parcels()] {
        assert!(
            !scoop.operate().pauses().pause(target).new_runs_only().drain(Duration::ZERO).await?.is_drained()
        );
    }
    let late = scoop.launch(parcel("late", 0)).await?;
    let drained = scoop.operate().pauses().drained(PauseTarget::Everything);
    assert_eq!(drained.progress().await?, 2);
    assert_eq!(scoop.operate().pauses().drained(parcels()).within(Duration::from_millis(5)).await?, 1);

    office.orders.gate.open(1);
    office.parcels.gate.arrivals(1).await;
    assert_eq!(scoop.operate().pauses().drained(parcels()).progress().await?, 2);
    office.parcels.gate.open(4);
    assert_eq!(tokio::time::timeout(LONG, drained.into_future()).await.expect("it ends")?, 0);
    for handle in [order, chain] {
        assert_eq!(handle.ends().await?, Outcome::Committed);
    }
    late.comes_to(is_pending).await?;
    assert!(!office.parcels.notes.all().contains(&"late".to_owned()));
    assert!(scoop.operate().pauses().pause(parcels()).new_runs_only().drain(LONG).await?.is_drained());
    office.parcels.gate.open(1);
    scoop.operate().pauses().resume(parcels()).await?;
    assert_eq!(late.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn full_pause_wins_and_a_second_pause_replaces_the_kind() -> Result<()> {
    let (db, office) = (Database::new().await, Office::default());
    let scoop = office.start(&db).await?;
    office.parcels.gate.open(1);
    let bill = scoop.launch(Bill("one".into())).await?;
    bill.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal)).await?;
    scoop.operate().pauses().pause(PauseTarget::Everything).new_runs_only().await?;
    scoop.operate().pauses().pause(PauseTarget::saga::<Bills>()).await?;
    scoop.signal(Paid, "one").await?;
    bill.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Ready)).await?;
    let run = scoop.operate().runs().explain(bill.id()).await?.runs.remove(0);
    let WaitReason::Pause { pauses } = &run.reason else { panic!("{run}") };
    assert!(matches!(&pauses[..], [pause] if !pause.new_runs_only), "{run}");
    // Now only new runs of it are paused.
    scoop.operate().pauses().pause(PauseTarget::saga::<Bills>()).new_runs_only().await?;
    assert_eq!(bill.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_new_run_ends_during_the_pause() -> Result<()> {
    let (db, office) = (Database::new().await, Office::default());
    let scoop = office.start(&db).await?;
    office.parcels.gate.open(3);
    scoop.operate().pauses().pause(parcels()).new_runs_only().await?;
    let cancelled = scoop.launch(parcel("cancelled", 0)).await?;
    // Claims have passed over it.
    office.orders.gate.open(1);
    let order = scoop.launch(Order).await?;
    office.orders.gate.arrivals(1).await;
    scoop.cancel(cancelled.id(), "not wanted").await?;
    assert!(matches!(cancelled.ends().await?, Outcome::RolledBack(_)));
    // The order is not paused, and its parcel is new.
    order.comes_to(|tree| tree.runs().iter().any(|run| run.state == RunState::Pending)).await?;
    assert_eq!(office.parcels.notes.all(), [""; 0]);
    scoop.operate().pauses().resume(parcels()).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn process_that_starts_during_the_pause_begins_no_new_run() -> Result<()> {
    let (db, office) = (Database::new().await, Office::default());
    let scoop = office.start(&db).await?;
    let begun = scoop.launch(parcel("begun", 1)).await?;
    office.parcels.gate.arrivals(1).await;
    db.client().operate().pauses().pause(PauseTarget::Everything).new_runs_only().await?;
    let other = office.start(&db).await?;
    let late = [other.launch(parcel("late", 0)).await?, db.client().launch(parcel("late", 0)).await?];
    office.parcels.gate.open(10);
    assert_eq!(begun.ends().await?, Outcome::Committed);
    assert_eq!(other.operate().pauses().drained(PauseTarget::Everything).within(LONG).await?, 0);
    for handle in &late {
        handle.comes_to(is_pending).await?;
    }
    assert_eq!(office.parcels.notes.all(), ["begun", "begun"]);
    scoop.shutdown().await?;
    other.operate().pauses().resume(PauseTarget::Everything).await?;
    for handle in late {
        assert_eq!(handle.ends().await?, Outcome::Committed);
    }
    other.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_and_serial_runs_wait_until_the_resume() -> Result<()> {
    let (db, office) = (Database::new().await, Office::default());
    let scoop = office.start_limited(&db).await?;
    let Office { letters, copies, .. } = &office;
    let begun = scoop.launch(letter("red", "one")).await?;
    letters.gate.arrivals(1).await;
    copies.gate.arrivals(1).await;
    let parked = scoop.launch(letter("red", "two")).await?;
    eventually("both are parked", async || db.number(PARKED).await == 2).await;
    scoop.operate().pauses().pause(PauseTarget::Everything).new_runs_only().await?;
    let late = scoop.launch(letter("blue", "three")).await?;
    letters.gate.open(10);
    copies.gate.open(10);
    assert_eq!(begun.ends().await?, Outcome::Committed);
    assert_eq!(scoop.operate().pauses().drained(PauseTarget::Everything).within(LONG).await?, 0);
    takes(300).await;
    assert_eq!((letters.notes.all(), copies.notes.all()), (vec!["one".into()], vec!["one".into()]));
    scoop.operate().pauses().resume(PauseTarget::Everything).await?;
    for handle in [parked, late] {
        assert_eq!(handle.ends().await?, Outcome::Committed);
    }
    assert_eq!((letters.notes.all().len(), copies.notes.all().len()), (3, 3));
    scoop.shutdown().await?;
    Ok(())
}

/// Waits for three seconds with few transactions, which an engine that spins never has. Sessions report their statistics ten
/// seconds after they have become idle, so the transactions of before are in a later count.
async fn comes_to_rest(db: &Database) {
    let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    eventually("fewer than 150 transactions in three seconds", async || {
        let before = db.number(count).await;
        takes(3_000).await;
        db.number(count).await - before < 150
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_does_not_spin_on_new_runs() -> Result<()> {
    let (db, office) = (Database::new().await, Office::default());
    let (scoop, limited) = (office.start(&db).await?, office.start_limited(&db).await?);
    // The second one is parked, and then new.
    let begun = scoop.launch(letter("green", "one")).await?;
    office.letters.gate.arrivals(1).await;
    scoop.launch(letter("green", "two")).await?;
    eventually("both are parked", async || db.number(PARKED).await == 2).await;
    scoop.operate().pauses().pause(PauseTarget::Everything).new_runs_only().await?;
    office.letters.gate.open(1);
    office.copies.gate.open(1);
    assert_eq!(begun.ends().await?, Outcome::Committed);
    let launched = scoop.launch_all((0..500).map(|nth| parcel(&nth.to_string(), 0))).await?;
    scoop.launch_all((0..50).map(|nth| letter("red", &nth.to_string()))).await?;
    comes_to_rest(&db).await;
    assert_eq!(office.parcels.notes.all(), [""; 0]);
    let drained = scoop.operate().pauses().drained(PauseTarget::Everything);
    assert_eq!(drained.progress().await?, 0);
    launched[7].comes_to(is_pending).await?;
    db.execute("DELETE FROM scoop.run").await;
    limited.shutdown().await?;
    scoop.shutdown().await?;
    Ok(())
}
