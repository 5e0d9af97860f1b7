//! Pauses: of a saga, of a topic, and of everything; what goes on meanwhile, and how they end.

use std::time::Duration;

use scoop::operate::{OperateError, WaitKind, WaitReason};
use scoop::pauses::{Pause, PauseTarget};
use scoop::{Decider, RunPhase};

use super::*;
use crate::support::{Database, Gate, Notes, eventually};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

/// Longer than any step of these tests.
const LONG: Duration = Duration::from_secs(60);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "paused.order")]
struct Order {
    fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "paused.parcel")]
struct Parcel {
    fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "paused.bill")]
struct Bill;

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "paused.paid", retention = "1 day")]
struct Paid;

/// Launches a parcel and waits for it.
struct Orders {
    notes: Notes,
}

#[saga(name = "pausable-orders")]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = undo)]
    async fn pack(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        self.notes.add("pack");
        scope.launch(Parcel { fails: order.fails }).await?;
        Ok(())
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        self.notes.add("close");
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Order, _: &Failure) -> Result<()> {
        self.notes.add("unpack");
        Ok(())
    }
}

/// Stops in its first step.
struct Parcels {
    gate: Gate,
    notes: Notes,
}

#[saga(name = "pausable-parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step(rollback = undo)]
    async fn load(&self, _: &mut Scope<'_>, _: &Parcel) -> Result<()> {
        self.notes.add("load");
        self.gate.pass().await;
        Ok(())
    }

    #[step]
    async fn deliver(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        self.notes.add("deliver");
        if parcel.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Parcel, _: &Failure) -> Result<()> {
        self.notes.add("unload");
        Ok(())
    }
}

/// Awaits a signal.
struct Bills {
    notes: Notes,
}

#[saga(name = "pausable-bills")]
#[subscribes(Bill)]
impl Bills {
    #[step(awaits(Paid, by = key))]
    async fn pay(&self, _: &mut Scope<'_>, _: &Bill, _: &Paid) -> Result<()> {
        self.notes.add("pay");
        Ok(())
    }

    async fn key(&self, _: &mut Scope<'_>, _: &Bill) -> Result<String> {
        Ok("bill".into())
    }
}

struct Shop {
    db: Database,
    gate: Gate,
    notes: Notes,
    scoop: Scoop,
}

impl Shop {
    async fn open() -> Result<Self> {
        let (db, gate, notes) = (Database::new().await, Gate::default(), Notes::default());
        let scoop = start(&db, &gate, &notes).await?;
        Ok(Self { db, gate, notes, scoop })
    }
}

async fn start(db: &Database, gate: &Gate, notes: &Notes) -> Result<Scoop> {
    let scoop = db.scoop().only::<Orders>().only::<Parcels>().only::<Bills>().poll_interval(NEVER);
    let scoop = scoop.provide(Orders { notes: notes.clone() }).provide(Bills { notes: notes.clone() });
    Ok(scoop.provide(Parcels { gate: gate.clone(), notes: notes.clone() }).start().await?)
}

fn parcels() -> PauseTarget {
    PauseTarget::saga::<Parcels>()
}

fn is_paused(saga: &str) -> impl Fn(&Tree) -> bool + '_ {
    move |tree| tree.runs().iter().any(|run| run.handler == saga && !run.pauses.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn step_in_progress_ends_and_the_next_one_begins_after_the_resume() -> Result<()> {
    let Shop { db: _db, gate, notes, scoop, .. } = Shop::open().await?;
    let order = scoop.launch(Order { fails: false }).await?;
    gate.arrivals(1).await;
    let paused =
        scoop.operate().pauses().pause(parcels()).reason("the lorry is broken").source("ann").await?;
    assert!(paused.in_force && paused.is_known && paused.unacknowledged.is_empty(), "{paused}");
    assert!(paused.running == 1 && !paused.is_drained(), "{paused}");
    gate.open(1);
    let paused = scoop
        .operate()
        .pauses()
        .pause(parcels())
        .reason("the lorry is broken")
        .source("ann")
        .drain(LONG)
        .await?;
    assert!(paused.is_drained(), "{paused}");
    let tree = order.comes_to(is_paused("pausable-parcels")).await?;
    assert!(tree.to_string().contains("saga `pausable-parcels` is paused by ann since 2"), "{tree}");
    assert_eq!(notes.all(), ["pack", "load"]);
    assert_eq!(scoop.operate().pauses().resume(parcels()).await?, Some(paused.pause));
    assert_eq!(scoop.operate().pauses().resume(parcels()).await?, None);
    assert_eq!(order.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["pack", "load", "deliver", "close"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn launches_of_this_and_other_programs_wait_and_say_why() -> Result<()> {
    let Shop { db, gate, notes, scoop } = Shop::open().await?;
    gate.open(10);
    let client = db.client();
    client
        .operate()
        .pauses()
        .pause(PauseTarget::topic("paused.parcel"))
        .source("ann")
        .reason("stocktaking")
        .await?;
    let own = scoop.launch(Parcel { fails: false }).await?;
    let foreign = client.launch(Parcel { fails: false }).await?;
    // Another handler is not delayed, up to the child that waits.
    let order = scoop.launch(Order { fails: false }).await?;
    order.comes_to(is_paused("pausable-parcels")).await?;
    assert_eq!(notes.all(), ["pack"]);

    let run = client.operate().runs().explain(own.id()).await?.runs.remove(0);
    let WaitReason::Pause { pauses } = &run.reason else { panic!("{run:?}") };
    assert_eq!(*pauses, client.operate().pauses().list().await?);
    let [Pause { target, reason, source, until: None, .. }] = &pauses[..] else { panic!("{run:?}") };
    assert_eq!(*target, PauseTarget::topic("paused.parcel"));
    assert_eq!((reason.as_deref(), &**source), (Some("stocktaking"), "ann"));
    let text = run.to_string();
    assert!(text.contains("waits for the end of a pause"), "{text}");
    assert!(text.contains("topic `paused.parcel` is paused by ann since 2"), "{text}");
    assert!(text.ends_with("It goes on when `resume` ends the pause of topic `paused.parcel`."), "{text}");
    let parent = client.operate().runs().explain(order.id()).await?.runs.remove(0).to_string();
    assert!(parent.contains("`pausable-parcels` has been waiting for the end of a pause for "), "{parent}");
    let page = client.operate().runs().list().waiting_for(WaitKind::Pause).await?;
    assert_eq!(page.runs.len(), 3);
    assert!(page.runs.iter().all(|run| run.phase == RunPhase::Pending));

    client.operate().pauses().resume(PauseTarget::topic("paused.parcel")).await?;
    for handle in [own, foreign, order] {
        assert_eq!(handle.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_is_in_force_in_all_processes_when_the_call_returns() -> Result<()> {
    let Shop { db, gate, notes, scoop } = Shop::open().await?;
    let others = [start(&db, &gate, &notes).await?, start(&db, &gate, &notes).await?];
    gate.open(1_000);
    let parcel = || Parcel { fails: false };
    for round in 0..5 {
        let paused = db.client().operate().pauses().pause(parcels()).await?;
        assert!(paused.in_force && paused.unacknowledged.is_empty(), "{paused}");
        assert!(scoop.operate().pauses().pause(parcels()).drain(LONG).await?.is_drained());
        let begun = notes.all().len();
        let waiting = scoop.launch_all((0..20).map(|_| parcel())).await?;
        for handle in &waiting {
            handle.comes_to(is_paused("pausable-parcels")).await?;
        }
        assert_eq!(notes.all().len(), begun, "no step has begun in round {round}");
        others[round % 2].operate().pauses().resume(parcels()).await?;
        for handle in waiting {
            assert_eq!(handle.ends().await?, Outcome::Committed);
        }
    }
    for process in others.into_iter().chain([scoop]) {
        process.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parent_of_a_paused_saga_rests_until_the_resume() -> Result<()> {
    let Shop { db: _db, gate, notes, scoop, .. } = Shop::open().await?;
    let order = scoop.launch(Order { fails: false }).await?;
    gate.arrivals(1).await;
    let paused = scoop.operate().pauses().pause(PauseTarget::saga::<Orders>()).drain(LONG).await?;
    assert!(paused.is_drained(), "{paused}");
    gate.open(1);
    order.comes_to(is_paused("pausable-orders")).await?;
    assert_eq!(notes.all(), ["pack", "load", "deliver"]);
    scoop.operate().pauses().resume(PauseTarget::saga::<Orders>()).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_of_a_paused_saga_rests_and_that_of_its_parent_waits() -> Result<()> {
    let Shop { db: _db, gate, notes, scoop, .. } = Shop::open().await?;
    let order = scoop.launch(Order { fails: false }).await?;
    gate.open(1);
    assert_eq!(order.ends().await?, Outcome::Committed);
    scoop.operate().pauses().pause(parcels()).await?;
    scoop.rollback(order.id(), "it came back").await?;
    order.comes_to(is_paused("pausable-parcels")).await?;
    assert_eq!(notes.all().len(), 4, "no compensation has begun: {:?}", notes.all());
    scoop.operate().pauses().resume(parcels()).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(notes.all()[4..], ["unload", "unpack"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_reaches_a_paused_run_which_goes_on_after_the_resume() -> Result<()> {
    let Shop { db: _db, notes, scoop, .. } = Shop::open().await?;
    let bill = scoop.launch(Bill).await?;
    bill.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal)).await?;
    scoop.operate().pauses().pause(PauseTarget::Everything).await?;
    let [awaiting] = &scoop.operate().runs().explain(bill.id()).await?.runs[..] else {
        panic!("there is one run")
    };
    assert!(matches!(awaiting.reason, WaitReason::Signal { .. }), "{awaiting}");
    assert_eq!(awaiting.pauses, scoop.operate().pauses().list().await?);
    let text = awaiting.to_string();
    assert!(text.contains("No step of it begins now: everything is paused by scoop since 2"), "{text}");
    assert!(text.ends_with(" Also, `resume` has to end the pause of everything."), "{text}");
    assert_eq!(scoop.signal(Paid, "bill").await?, 1);
    bill.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Ready)).await?;
    let [reached] = &scoop.operate().runs().explain(bill.id()).await?.runs[..] else {
        panic!("there is one run")
    };
    assert!(matches!(reached.reason, WaitReason::Pause { .. }), "{reached}");
    assert_eq!(notes.all(), [""; 0]);
    scoop.operate().pauses().resume(PauseTarget::Everything).await?;
    assert_eq!(bill.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_and_overdue_runs_give_up_at_the_resume() -> Result<()> {
    let Shop { db, notes, scoop, .. } = Shop::open().await?;
    scoop.operate().pauses().pause(parcels()).await?;
    let cancelled = scoop.launch(Parcel { fails: false }).await?;
    let overdue = scoop.launch(Parcel { fails: false }).deadline(Duration::from_millis(20)).await?;
    scoop.cancel(cancelled.id(), "not wanted").await?;
    cancelled.comes_to(|tree| tree.roots().iter().all(|run| run.giving_up)).await?;
    let late = db.time().await + Duration::from_millis(20);
    eventually("the deadline is over", async || db.time().await > late).await;
    scoop.operate().pauses().resume(parcels()).await?;
    for handle in [cancelled, overdue] {
        assert!(matches!(handle.ends().await?, Outcome::RolledBack(_)));
    }
    assert_eq!(notes.all(), [""; 0], "no step has begun");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_ends_the_pause_by_itself() -> Result<()> {
    let Shop { db: _db, gate, scoop, .. } = Shop::open().await?;
    gate.open(1);
    let paused = scoop.operate().pauses().pause(parcels()).for_at_most(NEVER).await?;
    assert!(paused.pause.until.is_some(), "{paused}");
    let parcel = scoop.launch(Parcel { fails: false }).await?;
    let text = scoop.operate().runs().explain(parcel.id()).await?.to_string();
    assert!(text.ends_with("ends the pause of saga `pausable-parcels`, or at that time."), "{text}");
    scoop.operate().pauses().pause(parcels()).for_at_most(Duration::from_millis(20)).await?;
    assert_eq!(parcel.ends().await?, Outcome::Committed);
    assert_eq!(scoop.operate().pauses().list().await?, []);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_that_would_end_at_once_is_refused() -> Result<()> {
    let Shop { db: _db, scoop, .. } = Shop::open().await?;
    let Err(refused) = scoop.operate().pauses().pause(parcels()).for_at_most(Duration::ZERO).await else {
        panic!("it is paused")
    };
    assert_eq!(
        refused.to_string(),
        "a pause for 0 ms would end at once; write `.for_at_most(Duration::from_millis(1))` or more, or leave it out: then the \
         pause lasts until `resume` ends it"
    );
    assert_eq!(scoop.operate().pauses().list().await?, []);
    scoop.operate().pauses().pause(parcels()).for_at_most(Duration::from_millis(1)).await?;
    eventually("it has ended", async || {
        scoop.operate().pauses().list().await.is_ok_and(|pauses| pauses.is_empty())
    })
    .await;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_survive_restarts_and_add_up() -> Result<()> {
    let Shop { db, gate, notes, scoop } = Shop::open().await?;
    gate.open(1);
    scoop.operate().pauses().pause(parcels()).source("ann").await?;
    scoop.operate().pauses().pause(PauseTarget::Everything).source("bob").await?;
    let parcel = scoop.launch(Parcel { fails: false }).await?;
    scoop.shutdown().await?;
    // A pause can be ended while no process lives.
    let client = db.client();
    client.operate().pauses().resume(parcels()).await?;
    let again =
        client.operate().pauses().pause(PauseTarget::Everything).source("bob").reason("an audit").await?;
    assert!(again.is_drained(), "{again}");
    let scoop = start(&db, &gate, &notes).await?;
    let pauses = scoop.operate().pauses().list().await?;
    assert_eq!(pauses, [again.pause]);
    assert_eq!(pauses[0].reason.as_deref(), Some("an audit"));
    let tree = parcel.tree().await?;
    assert_eq!(tree.roots()[0].pauses, pauses);
    assert_eq!(notes.all(), [""; 0]);
    scoop.operate().pauses().resume(PauseTarget::Everything).await?;
    eventually("the parcel is delivered", async || notes.all() == ["load", "deliver"]).await;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_more_than_a_thousand_characters_is_refused() -> Result<()> {
    let Shop { db: _db, scoop, .. } = Shop::open().await?;
    let text = |chars| "\u{17e}".repeat(chars);
    let is_refused = |error: &OperateError| {
        let says = error.to_string().ends_with(" of a pause has 1001 characters, and 1000 are possible");
        assert!(error.is_invalid() && says, "{error}");
    };
    is_refused(
        &scoop.operate().pauses().pause(parcels()).reason(text(1_001)).await.expect_err("it is refused"),
    );
    is_refused(
        &scoop.operate().pauses().pause(parcels()).source(text(1_001)).await.expect_err("it is refused"),
    );
    assert_eq!(scoop.operate().pauses().list().await?, []);
    scoop.operate().pauses().pause(parcels()).reason(text(1_000)).source(text(1_000)).await?;
    is_refused(&scoop.operate().pauses().resume(parcels()).reason(text(1_001)).await.unwrap_err());
    is_refused(&scoop.operate().pauses().resume(parcels()).source(text(1_001)).await.unwrap_err());
    scoop.operate().pauses().resume(parcels()).await?;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_name_is_refused_and_unknown_one_is_reported() -> Result<()> {
    let Shop { db: _db, scoop, .. } = Shop::open().await?;
    for name in ["", "a\0b", &"a".repeat(256)] {
        let Err(error) = scoop.operate().pauses().pause(PauseTarget::handler(name)).await else {
            panic!("{name:?} is possible")
        };
        assert!(error.is_invalid(), "{error}");
    }
    assert!(scoop.operate().pauses().is_registered(&parcels()).await?);
    assert!(scoop.operate().pauses().is_registered(&PauseTarget::topic("paused.order")).await?);
    assert!(!scoop.operate().pauses().is_registered(&PauseTarget::topic("paused.orders")).await?);
    let paused = scoop.operate().pauses().pause(PauseTarget::handler("pausable-parcel")).await?;
    assert!(!paused.is_known, "{paused}");
    assert!(paused.to_string().contains("no handler was ever registered that it covers"), "{paused}");
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "paused.trip")]
struct Trip;

#[derive(Default)]
struct FormerTrips;

#[saga(name = "pausable-former-trips")]
#[subscribes(Trip)]
impl FormerTrips {
    #[step]
    async fn go(&self, _: &mut Scope<'_>, _: &Trip) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Trips;

#[saga(name = "pausable-trips", was = "pausable-former-trips")]
#[subscribes(Trip)]
impl Trips {
    #[step]
    async fn go(&self, _: &mut Scope<'_>, _: &Trip) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_saga_stays_paused_under_all_its_names() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((FormerTrips,)).await?;
    scoop.operate().pauses().pause(PauseTarget::saga::<FormerTrips>()).await?;
    let former = scoop.launch(Trip).await?;
    scoop.shutdown().await?;
    let scoop = db.start((Trips,)).await?;
    let renamed = scoop.launch(Trip).await?;
    for (trip, saga) in [(&former, "pausable-former-trips"), (&renamed, "pausable-trips")] {
        trip.comes_to(is_paused(saga)).await?;
        let run = scoop.operate().runs().explain(trip.id()).await?.runs.remove(0);
        assert!(matches!(run.reason, WaitReason::Pause { .. }), "{run}");
    }
    // A retired saga stays paused, too.
    scoop.operate().handlers().retire("paused.trip", "pausable-trips").await?;
    let again = scoop.operate().pauses().pause(PauseTarget::saga::<Trips>()).await?;
    assert!(again.is_known, "{again}");
    assert!(scoop.operate().pauses().resume(PauseTarget::saga::<FormerTrips>()).await?.is_some());
    for trip in [&former, &renamed] {
        let run = scoop.operate().runs().explain(trip.id()).await?.runs.remove(0);
        let WaitReason::Pause { pauses } = &run.reason else { panic!("{run}") };
        assert_eq!(*pauses, std::slice::from_ref(&again.pause));
    }
    scoop.operate().pauses().resume(PauseTarget::saga::<Trips>()).await?;
    for trip in [former, renamed] {
        assert_eq!(trip.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    Ok(())
}

/// Notes the due times of its ticks, in microseconds.
struct Beats {
    notes: Notes,
}

#[saga(name = "pausable-beats", every = "20ms")]
#[subscribes(Tick)]
impl Beats {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, tick: &Tick) -> Result<()> {
        let due = tick.due().duration_since(std::time::SystemTime::UNIX_EPOCH)?;
        self.notes.add(due.as_micros().to_string());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_of_a_paused_saga_stands_still() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = db.start((Beats { notes: notes.clone() },)).await?;
    eventually("it beats", async || notes.all().len() > 1).await;
    let paused = scoop.operate().pauses().pause(PauseTarget::saga::<Beats>()).drain(LONG).await?;
    assert!(paused.is_drained(), "{paused}");
    let (before, until) = (notes.all().len(), db.time().await + Duration::from_millis(300));
    eventually("many beats are due", async || db.time().await > until).await;
    assert_eq!(notes.all().len(), before);
    scoop.operate().pauses().resume(PauseTarget::saga::<Beats>()).await?;
    // Those before were perhaps launched before the pause.
    let until = u64::try_from(until.duration_since(std::time::SystemTime::UNIX_EPOCH)?.as_micros())?;
    let all = || notes.all().iter().map(|due| due.parse().unwrap()).collect::<Vec<u64>>();
    eventually("it beats again", async || all().into_iter().any(|due| due > until)).await;
    let mut due = all();
    due.sort_unstable();
    let longest = due.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
    assert!(longest > Some(200_000), "the missed beats are made up for by one: {due:?}");
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Till {
    cents: i64,
}

#[entity(name = "pausable-till", key = u32)]
impl Till {
    fn paid_in(&mut self, event: &PaidIn) {
        self.cents += event.cents;
    }
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "paused.paid-in")]
struct PaidIn {
    cents: i64,
}

#[derive(Serialize, Deserialize)]
struct PayIn {
    cents: i64,
}

#[command(entity = Till)]
impl PayIn {
    fn key(&self) -> u32 {
        1
    }

    fn decide(&self, _: &Till) -> Decision<PaidIn, ()> {
        Decision::Accepted(PaidIn { cents: self.cents })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_is_decided_after_the_resume() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<PayIn>>().poll_interval(NEVER).start().await?;
    let decider = PauseTarget::saga::<Decider<PayIn>>();
    scoop.operate().pauses().pause(decider.clone()).await?;
    let sent = scoop.send(PayIn { cents: 7 }).await?;
    let page = scoop.operate().runs().list().waiting_for(WaitKind::Pause).await?;
    assert_eq!(page.runs.len(), 1);
    assert_eq!(scoop.entity::<Till>(1).await?.version, 0);
    scoop.operate().pauses().resume(&decider).await?;
    assert_eq!(sent.decision().await?, Decision::Accepted(PaidIn { cents: 7 }));
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "paused.left")]
struct Left {
    pair: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "paused.right")]
struct Right {
    pair: String,
}

struct Pairs {
    notes: Notes,
}

#[saga(name = "pausable-pairs")]
#[subscribes(join(Left, Right, by = pair))]
impl Pairs {
    #[step]
    async fn meet(&self, _: &mut Scope<'_>, of: &PairsMessage) -> Result<()> {
        self.notes.add(&of.left.pair);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn set_for_a_paused_saga_is_collected_and_waits() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = db.scoop().only::<Pairs>().provide(Pairs { notes: notes.clone() }).poll_interval(NEVER);
    let scoop = scoop.start().await?;
    scoop.operate().pauses().pause(PauseTarget::saga::<Pairs>()).await?;
    let left = scoop.launch(Left { pair: "seven".into() }).await?;
    assert_eq!(left.ends().await?, Outcome::Committed);
    let right = scoop.launch(Right { pair: "seven".into() }).await?;
    assert_eq!(right.ends().await?, Outcome::Committed);
    assert!(scoop.operate().runs().waiting_members().await?.is_empty());
    let page = scoop.operate().runs().list().waiting_for(WaitKind::Pause).await?;
    let [set] = &page.runs[..] else { panic!("{page:?}") };
    assert_eq!((&*set.handler, notes.all().len()), ("pausable-pairs", 0));
    scoop.operate().pauses().resume(PauseTarget::saga::<Pairs>()).await?;
    assert_eq!(scoop.find(set.hierarchy).await?.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["seven"]);
    scoop.shutdown().await?;
    Ok(())
}
