//! Deletion of finished hierarchies: what is deleted, what is kept, and what users see afterwards.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use scoop::requests::RepairAnswer;
use scoop::retention::Pruned;
use scoop::{Decider, Handle};

use super::*;
use crate::support::{Database, Gate, Notes, eventually};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "retention.order", reply = u32)]
enum Order {
    Commits,
    Fails,
    FailsToRollBack,
    Waits,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "retention.parcel")]
struct Parcel;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "retention.unsubscribed")]
struct Unsubscribed;

#[derive(Clone, Default)]
struct Orders {
    gate: Gate,
}

#[saga(name = "retention-orders")]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = unpack)]
    async fn pack(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        scope.launch(Parcel).await?;
        scope.reply(order, 7)?;
        Ok(())
    }

    #[step]
    async fn send(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        match order {
            Order::Commits => Ok(()),
            Order::Fails | Order::FailsToRollBack => Err(SIMULATED.into()),
            Order::Waits => {
                self.gate.pass().await;
                Ok(())
            }
        }
    }

    async fn unpack(&self, _: &mut Scope<'_>, order: &Order, _: &Failure) -> Result<()> {
        match order {
            Order::FailsToRollBack => Err(SIMULATED.into()),
            _ => Ok(()),
        }
    }
}

handler! {
    Parcels: "retention-parcels" on Parcel;
    step "stamp" stamp [rollback = unstamp] => done().silently();
    rollback unstamp => done().silently();
}

struct ErrorQueue;

#[saga(name = "retention-error-queue")]
#[subscribes(Failed)]
impl ErrorQueue {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, _: &Failed) -> Result<()> {
        Ok(())
    }
}

async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
    let builder = db.scoop().only::<Orders>().provide(Orders { gate: gate.clone() });
    Ok(builder.only::<Parcels>().start().await?)
}

/// Launches an order that ends.
async fn ended(scoop: &Scoop, order: Order) -> Result<Handle> {
    let handle = scoop.launch(order).await?;
    handle.ends().await?;
    Ok(handle)
}

/// Prunes what has no event in the last 30 days.
async fn prune(scoop: &Scoop) -> Result<Pruned> {
    let expected = scoop.operate().retention().prune().dry_run().await?;
    let pruned = scoop.operate().retention().prune().await?;
    assert_eq!(pruned, expected, "a dry run counts the same");
    Ok(pruned)
}

async fn is_pruned(scoop: &Scoop, handle: &Handle) -> Result<bool> {
    let found = scoop.find(handle.id()).await;
    if let Err(error) = &found {
        assert!(error.is_not_found() && error.to_string().starts_with("there is no message "), "{error}");
        assert!(error.to_string().ends_with("or was its hierarchy pruned?"), "{error}");
        let gone = handle.wait().await.unwrap_err();
        assert!(gone.is_not_found() && gone.to_string().starts_with("there is no message "), "{gone}");
        assert!(handle.tree().await?.runs().is_empty());
        let gone = scoop.cancel(handle.id(), "too late").await.unwrap_err();
        assert!(gone.is_not_found(), "{gone}");
        assert!(gone.to_string().starts_with("there is no hierarchy and no run "), "{gone}");
    }
    Ok(found.is_err())
}

#[tokio::test(flavor = "multi_thread")]
async fn old_finished_hierarchies_are_pruned_and_younger_ones_kept() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default()).await?;
    let (committed, rolled_back) = (ended(&scoop, Order::Commits).await?, ended(&scoop, Order::Fails).await?);
    let unhandled = scoop.launch(Unsubscribed).await?;
    db.grow_older(31 * DAY).await;
    let younger = ended(&scoop, Order::Commits).await?;
    db.grow_older(29 * DAY).await;

    let pruned = prune(&scoop).await?;
    assert_eq!((pruned.hierarchies, pruned.messages, pruned.more), (3, 5, false), "{pruned:?}");
    assert_eq!(pruned.retained, Default::default());
    for handle in [&committed, &rolled_back, &unhandled] {
        assert!(is_pruned(&scoop, handle).await?);
    }
    assert!(!is_pruned(&scoop, &younger).await?);
    assert_eq!(younger.ends().await?, Outcome::Committed);
    assert_eq!(younger.replies::<Order>().await?.len(), 1);
    assert_eq!(prune(&scoop).await?, Pruned::default());
    scoop.shutdown().await?;
    assert_eq!(db.history().await.count("EMITTED"), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_hierarchies_lose_nothing() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate).await?;
    let order = scoop.launch(Order::Waits).await?;
    gate.arrivals(1).await;
    let before = db.history().await.rows().len();
    db.grow_older(60 * DAY).await;
    let pruned = prune(&scoop).await?;
    assert_eq!((pruned.hierarchies, pruned.retained.unfinished), (0, 1), "{pruned:?}");
    assert_eq!(db.history().await.rows().len(), before);
    gate.open(1);
    assert_eq!(order.ends().await?, Outcome::Committed);

    let pruned = prune(&scoop).await?;
    assert_eq!((pruned.hierarchies, pruned.retained.recent), (0, 1), "its last event is young: {pruned:?}");
    db.grow_older(60 * DAY).await;
    assert_eq!(prune(&scoop).await?.hierarchies, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_message_of_a_stopped_program_is_kept() -> Result<()> {
    let db = Database::new().await;
    start(&db, &Gate::default()).await?.shutdown().await?;
    let client = db.client();
    let order = client.launch(Order::Commits).await?;
    db.grow_older(60 * DAY).await;
    assert_eq!(prune(&client).await?.retained.unfinished, 1);
    let scoop = start(&db, &Gate::default()).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_is_kept_until_an_operator_has_settled_it() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default()).await?;
    let order = ended(&scoop, Order::FailsToRollBack).await?;
    db.grow_older(60 * DAY).await;
    let pruned = prune(&scoop).await?;
    assert_eq!((pruned.hierarchies, pruned.retained.failed), (0, 1), "{pruned:?}");

    let failed = scoop.operate().failures().list().await?.remove(0);
    assert_eq!(scoop.operate().failures().skip(failed.lineage.id(), "").await?, RepairAnswer::Accepted);
    eventually("it is rolled back", async || db.unfinished().await == 0).await;
    let pruned = prune(&scoop).await?;
    assert_eq!((pruned.hierarchies, pruned.retained.recent), (0, 1), "{pruned:?}");
    db.grow_older(60 * DAY).await;
    assert_eq!(prune(&scoop).await?.hierarchies, 1);
    assert!(is_pruned(&scoop, &order).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_about_a_failure_is_kept_while_that_run_is_failed() -> Result<()> {
    let db = Database::new().await;
    let builder = db.scoop().only::<Orders>().provide(Orders::default()).only::<Parcels>();
    let scoop = builder.only::<ErrorQueue>().provide(ErrorQueue).start().await?;
    ended(&scoop, Order::FailsToRollBack).await?;
    let rests = async || db.unfinished().await == 1 && db.able_to_go_on().await == 0;
    eventually("the message is handled", rests).await;
    db.grow_older(60 * DAY).await;
    let failed = scoop.operate().failures().list().await?.remove(0);
    assert_eq!(scoop.operate().failures().retry(failed.lineage.id()).await?, RepairAnswer::Accepted);
    eventually("it failed again", rests).await;
    let pruned = prune(&scoop).await?;
    assert_eq!((pruned.hierarchies, pruned.retained.failed, pruned.retained.needed), (0, 1, 1), "{pruned:?}");

    assert_eq!(scoop.operate().failures().skip(failed.lineage.id(), "").await?, RepairAnswer::Accepted);
    eventually("it is rolled back", async || db.unfinished().await == 0).await;
    assert_eq!(prune(&scoop).await?.hierarchies, 1, "the message");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unique_key_of_a_pruned_hierarchy_launches_anew() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default()).await?;
    let launch = async || scoop.launch(Order::Commits).unique("order 7").await;
    let first = launch().await?;
    first.ends().await?;
    db.grow_older(20 * DAY).await;
    assert_eq!(prune(&scoop).await?.hierarchies, 0);
    assert_eq!(launch().await?.ends().await?, Outcome::Committed);
    assert_eq!(db.history().await.count("EMITTED"), 2, "the key is known");
    db.grow_older(20 * DAY).await;
    assert_eq!(prune(&scoop).await?.hierarchies, 1);
    assert_eq!(launch().await?.ends().await?, Outcome::Committed);
    assert_eq!(db.history().await.count("EMITTED"), 2, "the first one is deleted");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_stops_and_progress_is_reported() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default()).await?;
    for _ in 0..3 {
        ended(&scoop, Order::Commits).await?;
    }
    db.grow_older(2 * DAY).await;
    let reports = Arc::new(Mutex::new(vec![]));
    let noted = reports.clone();
    let prune = scoop.operate().retention().prune().older_than(DAY).limit(2);
    let pruned = prune.on_progress(move |pruned| noted.lock().unwrap().push(pruned.hierarchies)).await?;
    assert_eq!((pruned.hierarchies, pruned.more), (2, true));
    assert_eq!(*reports.lock().unwrap(), [2]);
    let rest = scoop.operate().retention().prune().older_than(DAY).limit(2).await?;
    assert_eq!((rest.hierarchies, rest.more), (1, false));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn age_below_an_hour_is_refused() -> Result<()> {
    let db = Database::new().await;
    let refused =
        db.client().operate().retention().prune().older_than(Duration::from_secs(3_599)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "nothing younger than 1 h 0 min can be pruned, and `older_than` is 59 min 59 s; write \
         `.older_than(Duration::from_secs(3600))` or more"
    );
    Ok(())
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Till {
    cents: u64,
}

#[entity(name = "retention-till", key = u32)]
impl Till {
    fn paid(&mut self, event: &Paid) {
        self.cents += event.cents;
    }
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "retention.paid")]
struct Paid {
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct Pay {
    cents: u64,
}

#[command(entity = Till, topic = "retention.pay")]
impl Pay {
    fn key(&self) -> u32 {
        7
    }

    fn decide(&self, _: &Till) -> Decision<Paid, ()> {
        Decision::Accepted(Paid { cents: self.cents })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entity_keeps_its_state_and_the_messages_of_its_events() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<Pay>>().start().await?;
    for cents in [1, 2] {
        assert_eq!(scoop.send(Pay { cents }).await?.wait().await?, Outcome::Committed);
    }
    db.grow_older(60 * DAY).await;
    let pruned = prune(&scoop).await?;
    assert_eq!((pruned.hierarchies, pruned.messages), (2, 2), "the events stay: {pruned:?}");
    assert_eq!(scoop.send(Pay { cents: 4 }).await?.wait().await?, Outcome::Committed);
    let till = scoop.entity::<Till>(7).await?;
    assert_eq!((till.version, till.state.cents), (3, 7));
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "retention.picked")]
struct Picked {
    order: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "retention.billed")]
struct Billed {
    order: String,
}

struct Shipping {
    notes: Notes,
}

#[saga(name = "retention-shipping")]
#[subscribes(join(Picked, Billed, by = order))]
impl Shipping {
    #[step]
    async fn ship(&self, _: &mut Scope<'_>, of: &ShippingMessage) -> Result<()> {
        self.notes.add(&of.picked.order);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_waits_to_be_joined_is_kept_until_the_set_is_gone() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = db.scoop().only::<Shipping>().provide(Shipping { notes: notes.clone() }).start().await?;
    let order = || "7".to_owned();
    scoop.launch(Picked { order: order() }).await?.ends().await?;
    db.grow_older(60 * DAY).await;
    assert_eq!(prune(&scoop).await?.retained.needed, 1);

    let billed = scoop.launch(Billed { order: order() }).await?;
    billed.ends().await?;
    let [set] = scoop.operate().runs().joined(billed.message_id()).await?[..] else {
        panic!("it is joined once")
    };
    scoop.find(set).await?.ends().await?;
    assert_eq!(notes.all(), ["7"]);
    let pruned = prune(&scoop).await?;
    assert_eq!((pruned.hierarchies, pruned.retained.needed), (1, 0), "the one that was picked: {pruned:?}");

    db.grow_older(60 * DAY).await;
    let expected = scoop.operate().retention().prune().dry_run().await?;
    assert_eq!(
        (expected.hierarchies, expected.retained.needed),
        (1, 1),
        "the bill may have the set rolled back"
    );
    while scoop.operate().retention().prune().await?.hierarchies > 0 {}
    assert!(scoop.find(set).await.is_err());
    assert_eq!(db.history().await.rows().len(), 0);
    Ok(())
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "retention.alarm", retention = "10 days")]
struct Alarm;

#[tokio::test(flavor = "multi_thread")]
async fn signals_that_no_run_awaited_in_time_are_pruned() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default()).await?;
    scoop.signal(Alarm, "7").await?;
    db.grow_older(39 * DAY).await;
    assert_eq!(prune(&scoop).await?.signals, 0, "it was kept for 10 days");
    db.grow_older(2 * DAY).await;
    assert_eq!(prune(&scoop).await?.signals, 1);
    Ok(())
}
