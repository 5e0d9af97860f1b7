//! Sagas that handle `Failed`: one message for each failed end and each stuck run, in its transaction.

use std::time::Duration;

use scoop::requests::RepairAnswer;
use scoop::{Failed, FailedOutcome};

use super::*;
use crate::support::{Database, Notes, eventually};

/// The end of an order.
#[derive(Clone, Copy, Debug, PartialEq, Message, Serialize, Deserialize)]
#[message(topic = "error-queue.order")]
enum Order {
    Ships,
    Fails,
    FailsBelow,
    CannotBeUndone,
    Waits,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "error-queue.parcel")]
struct Parcel;

struct Shop;

#[saga(name = "shop")]
#[subscribes(Order)]
impl Shop {
    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        if *order == Order::FailsBelow {
            scope.launch(Parcel).await?;
        }
        Ok(())
    }

    #[step]
    async fn charge(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        match order {
            Order::Fails | Order::CannotBeUndone => Err(Error::msg("the card is declined")),
            Order::Waits => scope.sleep(Duration::from_secs(1_000_000)).await,
            Order::Ships | Order::FailsBelow => Ok(()),
        }
    }

    #[step]
    async fn ship(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }

    async fn release(&self, _: &mut Scope<'_>, order: &Order, _: &Failure) -> Result<()> {
        match order {
            Order::CannotBeUndone => Err(Error::msg("the stock is closed")),
            _ => Ok(()),
        }
    }
}

struct Post;

#[saga(name = "post")]
#[subscribes(Parcel)]
impl Post {
    #[step]
    async fn stamp(&self, _: &mut Scope<'_>, _: &Parcel) -> Result<()> {
        Err(Error::msg("no stamps"))
    }
}

/// Another program, which cannot continue a shop's run.
mod other {
    use super::*;

    pub(super) struct Shop;

    #[saga(name = "shop")]
    #[subscribes(Order)]
    impl Shop {
        #[step]
        async fn refuse(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
            Ok(())
        }
    }
}

/// Notes all failures.
struct ErrorQueue(Notes);

#[saga(name = "error-queue")]
#[subscribes(Failed)]
impl ErrorQueue {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        let Failed { outcome, saga, topic, .. } = failed;
        let order = failed.message::<Order>()?.map_or_else(String::new, |order| format!(" {order:?}"));
        let step = failed.step.as_deref().unwrap_or("no step");
        self.0.add(format!("{outcome}: {saga} in {step} on {topic}{order}"));
        self.0.add(failed.failure.root_causes()[0].message.clone());
        if let Some(failure) = &failed.rollback_failure {
            self.0.add(failure.root_causes()[0].message.clone());
        }
        Ok(())
    }
}

/// Fails, so that its own hierarchy ends rolled back, and has a child that fails, too.
struct FailingQueue(Notes);

#[saga(name = "failing-queue")]
#[subscribes(Failed)]
impl FailingQueue {
    #[step]
    async fn fail(&self, _: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        self.0.add(format!("{} {}", failed.saga, failed.outcome));
        Err(SIMULATED.into())
    }
}

/// Notes the failures that pass its filter.
struct StuckShops(Notes);

#[saga(name = "stuck-shops")]
#[subscribes(Failed(saga = Shop, outcome = "stuck"))]
impl StuckShops {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        self.0.add(format!("stuck shop: {} {}", failed.saga, failed.outcome));
        Ok(())
    }
}

struct ShopFailures(Notes);

#[saga(name = "shop-failures")]
#[subscribes(Failed(saga = "shop"))]
impl ShopFailures {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        self.0.add(format!("shop: {}", failed.outcome));
        Ok(())
    }
}

struct FailedRollbacks(Notes);

#[saga(name = "failed-rollbacks")]
#[subscribes(Failed(outcome = "rollback_failed"))]
impl FailedRollbacks {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        self.0.add(format!("rollback failed: {}", failed.saga));
        Ok(())
    }
}

/// Whether the run sleeps after its second step.
fn sleeps(tree: &Tree) -> bool {
    tree.roots()[0].state == RunState::Sleeping
}

/// Waits until only stuck and failed runs, and those waiting for them, are left.
async fn come_to_rest(db: &Database) {
    eventually("no run can go on", async || db.able_to_go_on().await == 0).await;
}

/// Launches an order and returns the notes after its end.
async fn notes_of(order: Order) -> Result<Vec<String>> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = db.start((Shop, Post, ErrorQueue(notes.clone()))).await?;
    scoop.launch(order).await?.ends().await?;
    come_to_rest(&db).await;
    scoop.shutdown().await?;
    Ok(notes.all())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_hierarchy_is_reported_once_with_message_step_and_failure() -> Result<()> {
    let expected = ["rolled back: shop in charge on error-queue.order Fails", "the card is declined"];
    assert_eq!(notes_of(Order::Fails).await?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_a_child_is_reported_for_the_root_only() -> Result<()> {
    let expected = ["rolled back: shop in reserve on error-queue.order FailsBelow", "no stamps"];
    assert_eq!(notes_of(Order::FailsBelow).await?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn success_is_not_reported() -> Result<()> {
    assert_eq!(notes_of(Order::Ships).await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_is_reported_with_both_failures_and_its_repair_as_rolled_back() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = db.start((Shop, ErrorQueue(notes.clone()))).await?;
    let root = scoop.launch(Order::CannotBeUndone).await?;
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
    come_to_rest(&db).await;
    let failed = [
        "rollback failed: shop in Rollback of reserve[0,] on error-queue.order CannotBeUndone",
        "the card is declined",
        "the stock is closed",
    ];
    assert_eq!(notes.all(), failed);

    // A repair that fails again is reported again; one that helps ends the hierarchy as rolled back.
    let run = root.tree().await?.roots()[0].id();
    assert_eq!(scoop.operate().failures().retry(run).await?, RepairAnswer::Accepted);
    eventually("it is reported again", async || notes.all().len() == 6).await;
    assert_eq!(notes.all()[3..], failed);
    assert_eq!(scoop.operate().failures().skip(run, "by hand").await?, RepairAnswer::Accepted);
    come_to_rest(&db).await;
    let repaired =
        ["rolled back: shop in charge on error-queue.order CannotBeUndone", "the card is declined"];
    assert_eq!(notes.all()[6..], repaired);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_and_undone_hierarchies_are_reported_as_rolled_back() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = db.start((Shop, ErrorQueue(notes.clone()))).await?;
    let waits = scoop.launch(Order::Waits).await?;
    waits.comes_to(sleeps).await?;
    assert_eq!(scoop.cancel(waits.id(), "too late").await?, CancelAnswer::Accepted);
    come_to_rest(&db).await;
    assert_eq!(notes.all()[0], "rolled back: shop in ship on error-queue.order Waits");
    assert!(notes.all()[1].contains("too late"), "{:?}", notes.all());

    let ships = scoop.launch(Order::Ships).await?;
    assert_eq!(ships.ends().await?, Outcome::Committed);
    assert_eq!(scoop.rollback(ships.id(), "sent back").await?, RollbackAnswer::Accepted);
    eventually("the rollback is reported", async || notes.all().len() == 4).await;
    assert!(notes.all()[2].starts_with("rolled back: shop"), "{:?}", notes.all());
    assert!(notes.all()[3].contains("sent back"), "{:?}", notes.all());
    scoop.shutdown().await?;
    Ok(())
}

/// A run that is stuck, in a database where `error-queue` is registered.
async fn stuck(db: &Database, notes: &Notes) -> Result<(Scoop, scoop::Handle)> {
    let scoop = db.start((Shop, StuckShops(notes.clone()), ErrorQueue(notes.clone()))).await?;
    let root = scoop.launch(Order::Waits).await?;
    root.comes_to(sleeps).await?;
    scoop.shutdown().await?;
    let scoop = db.start((other::Shop, StuckShops(notes.clone()), ErrorQueue(notes.clone()))).await?;
    assert_eq!(scoop.cancel(root.id(), "too late").await?, CancelAnswer::Accepted);
    eventually("it is stuck", async || {
        !scoop.operate().failures().stuck().await.expect("the database answers").is_empty()
    })
    .await;
    come_to_rest(db).await;
    Ok((scoop, root))
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_run_is_reported_once_until_it_goes_on() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let (scoop, root) = stuck(&db, &notes).await?;
    let reported = |notes: &Notes| notes.all().iter().filter(|note| note.starts_with("stuck")).count();
    assert!(
        notes.all().contains(&"stuck: shop in charge on error-queue.order Waits".into()),
        "{:?}",
        notes.all()
    );
    assert!(notes.all().contains(&"stuck shop: shop stuck".into()), "{:?}", notes.all());
    assert_eq!(reported(&notes), 2);

    // Another start of that program finds it stuck again.
    let since = stuck_since(&scoop).await;
    scoop.shutdown().await?;
    let scoop = db.start((other::Shop, StuckShops(notes.clone()), ErrorQueue(notes.clone()))).await?;
    eventually("it is stuck again", async || stuck_since(&scoop).await > since).await;
    come_to_rest(&db).await;
    assert_eq!(reported(&notes), 2);

    // As does a retry on request.
    let since = stuck_since(&scoop).await;
    let [run] = &*scoop.operate().failures().stuck().await? else { panic!("one run is stuck") };
    assert_eq!(scoop.operate().failures().retry(run.lineage.id()).await?, RepairAnswer::Accepted);
    eventually("it is stuck again", async || stuck_since(&scoop).await > since).await;
    come_to_rest(&db).await;
    scoop.shutdown().await?;

    let fitting = db.start((Shop, StuckShops(notes.clone()), ErrorQueue(notes.clone()))).await?;
    fitting.find(root.id()).await?.ends().await?;
    come_to_rest(&db).await;
    assert_eq!(reported(&notes), 2);
    assert_eq!(notes.all().iter().filter(|note| note.starts_with("rolled back: shop")).count(), 1);
    fitting.shutdown().await?;
    Ok(())
}

/// Since when the only stuck run is stuck, if one is.
async fn stuck_since(scoop: &Scoop) -> Option<std::time::SystemTime> {
    scoop.operate().failures().stuck().await.expect("the database answers").first().map(|run| run.since)
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_a_saga_that_handles_failures_is_not_reported() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = db.start((Shop, FailingQueue(notes.clone()), ShopFailures(notes.clone()))).await?;
    scoop.launch(Order::Fails).await?.ends().await?;
    come_to_rest(&db).await;
    let mut noted = notes.all();
    noted.sort();
    assert_eq!(noted, ["shop rolled back", "shop: rolled back"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_that_a_filter_excludes_starts_no_run() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let (stuck, rollbacks) = (StuckShops(notes.clone()), FailedRollbacks(notes.clone()));
    let scoop = db.start((Shop, Post, ShopFailures(notes.clone()), stuck, rollbacks)).await?;
    scoop.launch(Parcel).await?.ends().await?;
    come_to_rest(&db).await;
    // Neither a message: the events are those of the parcel.
    assert_eq!(db.history().await.rows().len(), 4);
    assert_eq!(notes.all(), Vec::<String>::new());
    scoop.launch(Order::CannotBeUndone).await?.ends().await?;
    come_to_rest(&db).await;
    let mut noted = notes.all();
    noted.sort();
    assert_eq!(noted, ["rollback failed: shop", "shop: rollback failed"]);
    if !Database::IN_MEMORY {
        let mut topics: Vec<_> =
            scoop.operate().handlers().list().await?.into_iter().map(|listed| listed.topic).collect();
        topics.retain(|topic| topic.starts_with("scoop."));
        assert_eq!(topics, ["scoop.failed.rollback_failed", "scoop.failed.stuck:shop", "scoop.failed:shop"]);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_wait_for_the_program_that_handles_them() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    db.start((ErrorQueue(notes.clone()),)).await?.shutdown().await?;
    let shop = db.start((Shop,)).await?;
    shop.launch(Order::Fails).await?.ends().await?;
    assert_eq!(db.unfinished().await, 1);
    let queue = db.start((ErrorQueue(notes.clone()),)).await?;
    come_to_rest(&db).await;
    // And while both run.
    shop.launch(Order::Fails).await?.ends().await?;
    come_to_rest(&db).await;
    assert_eq!(notes.all().len(), 4);
    // Nothing is sent to a retired handler.
    queue.shutdown().await?;
    assert!(shop.operate().handlers().retire("scoop.failed", "error-queue").await?.was_registered);
    shop.launch(Order::Fails).await?.ends().await?;
    assert_eq!(db.unfinished().await, 0);
    shop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "error-queue.bulk")]
struct Bulk(String);

struct BulkShop;

#[saga(name = "bulk-shop")]
#[subscribes(Bulk)]
impl BulkShop {
    #[step]
    async fn fail(&self, _: &mut Scope<'_>, _: &Bulk) -> Result<()> {
        Err(SIMULATED.into())
    }
}

struct Sizes(Notes);

#[saga(name = "sizes")]
#[subscribes(Failed(saga = BulkShop, outcome = "rolled_back"))]
impl Sizes {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        assert_eq!(failed.outcome, FailedOutcome::RolledBack);
        let bulk = failed.message::<Bulk>()?.map(|bulk| bulk.0.len());
        self.0.add(format!("{bulk:?} of {}", failed.topic));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_beyond_the_limit_is_left_out_of_the_report() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = db.start((BulkShop, Sizes(notes.clone()))).await?;
    for bytes in [1_000_000, 1_048_500] {
        scoop.launch(Bulk("x".repeat(bytes))).await?.ends().await?;
        come_to_rest(&db).await;
    }
    assert_eq!(notes.all(), ["Some(1000000) of error-queue.bulk", "None of error-queue.bulk"]);
    scoop.shutdown().await?;
    Ok(())
}
