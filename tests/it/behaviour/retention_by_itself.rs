//! Deletion of finished hierarchies by the programs themselves, when their time is over.

use std::time::Duration;

use scoop::Handle;
use scoop::operate::OperateError;
use scoop::requests::RepairAnswer;
use scoop::retention::Retention;

use super::*;
use crate::support::{Database, Gate, eventually};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "kept.order")]
enum Order {
    Commits,
    Fails,
    FailsToRollBack,
    Waits,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kept.contract", retention = "90 days")]
struct Contract;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kept.deed", retention = "forever")]
struct Deed;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kept.unsubscribed")]
struct Unsubscribed;

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Plan {
    Commit,
    Fail,
    FailToRollBack,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kept.invoice", retention(committed = "60 days", rolled_back = "20 days", failed = forever))]
struct Invoice(Plan);

/// Kept for the time of the program if it is rolled back.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kept.reminder", retention(committed = "20 days"))]
struct Reminder(Plan);

#[derive(Default)]
struct Letters;

#[saga(name = "kept-letters")]
#[subscribes(any(Invoice, Reminder))]
impl Letters {
    #[step(rollback = unwrite)]
    async fn write(&self, _: &mut Scope<'_>, _: &LettersMessage) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn send(&self, _: &mut Scope<'_>, letter: &LettersMessage) -> Result<()> {
        if plan_of(letter) == Plan::Commit { Ok(()) } else { Err(SIMULATED.into()) }
    }

    async fn unwrite(&self, _: &mut Scope<'_>, letter: &LettersMessage, _: &Failure) -> Result<()> {
        if plan_of(letter) == Plan::FailToRollBack { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

fn plan_of(letter: &LettersMessage) -> Plan {
    match letter {
        LettersMessage::Invoice(Invoice(plan)) | LettersMessage::Reminder(Reminder(plan)) => *plan,
    }
}

#[derive(Clone, Default)]
struct Orders {
    gate: Gate,
}

#[saga(name = "kept-orders")]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = unpack)]
    async fn pack(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
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
    Contracts: "kept-contracts" on Contract;
    step "sign" sign => done().silently();
}

handler! {
    Deeds: "kept-deeds" on Deed;
    step "sign" sign => done().silently();
}

handler! {
    Books: "kept-books" on Order;
    step "note" note => done().silently();
}

/// The default times, with frequent looks.
fn keep() -> Retention {
    Retention::default().every(Duration::from_millis(20))
}

async fn start(db: &Database, gate: &Gate, keep: Retention) -> Result<Scoop> {
    let builder = db.scoop().retention(keep).only::<Orders>().provide(Orders { gate: gate.clone() });
    Ok(builder.only::<Contracts>().only::<Deeds>().only::<Letters>().start().await?)
}

async fn ended(scoop: &Scoop, message: impl Message) -> Result<Handle> {
    let handle = scoop.launch(message).await?;
    handle.ends().await?;
    Ok(handle)
}

async fn is_kept(scoop: &Scoop, handle: &Handle) -> bool {
    scoop.find(handle.id()).await.is_ok()
}

async fn is_deleted(scoop: &Scoop, handle: &Handle) {
    eventually("it is deleted", async || !is_kept(scoop, handle).await).await;
}

/// Waits until the programs have looked at all that was launched before.
async fn all_is_looked_at(db: &Database, scoop: &Scoop) -> Result<()> {
    let last = ended(scoop, Order::Commits).await?;
    db.grow_older(8 * DAY).await;
    is_deleted(scoop, &last).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_hierarchies_are_deleted_after_a_week_and_others_after_a_month() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default(), keep()).await?;
    let (committed, rolled_back) = (ended(&scoop, Order::Commits).await?, ended(&scoop, Order::Fails).await?);
    let unhandled = scoop.launch(Unsubscribed).await?;
    all_is_looked_at(&db, &scoop).await?;
    assert!(!is_kept(&scoop, &committed).await);
    assert!(is_kept(&scoop, &rolled_back).await && is_kept(&scoop, &unhandled).await);
    let younger = ended(&scoop, Order::Commits).await?;
    db.grow_older(6 * DAY).await;
    assert!(is_kept(&scoop, &younger).await);
    db.grow_older(17 * DAY).await;
    for handle in [&rolled_back, &unhandled, &younger] {
        is_deleted(&scoop, handle).await;
    }
    scoop.shutdown().await?;
    assert_eq!(db.history().await.rows().len(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_hierarchies_are_deleted_a_week_after_their_end() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = start(&db, &gate, keep()).await?;
    let order = scoop.launch(Order::Waits).await?;
    gate.arrivals(1).await;
    db.grow_older(60 * DAY).await;
    all_is_looked_at(&db, &scoop).await?;
    assert!(is_kept(&scoop, &order).await);
    gate.open(1);
    assert_eq!(order.ends().await?, Outcome::Committed);
    all_is_looked_at(&db, &scoop).await?;
    db.grow_older(10 * DAY).await;
    is_deleted(&scoop, &order).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_that_awaits_an_operator_is_kept_until_it_is_settled() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default(), keep()).await?;
    let order = ended(&scoop, Order::FailsToRollBack).await?;
    db.grow_older(400 * DAY).await;
    all_is_looked_at(&db, &scoop).await?;
    let failed = scoop.operate().failures().list().await?.remove(0);
    assert_eq!(failed.lineage.root_id(), order.id().uuid());
    assert_eq!(scoop.operate().failures().skip(failed.lineage.id(), "").await?, RepairAnswer::Accepted);
    eventually("it is rolled back", async || db.unfinished().await == 0).await;
    all_is_looked_at(&db, &scoop).await?;
    assert!(is_kept(&scoop, &order).await);
    db.grow_older(100 * DAY).await;
    is_deleted(&scoop, &order).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_types_have_times_of_their_own() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default(), keep()).await?;
    let (contract, deed) = (ended(&scoop, Contract).await?, ended(&scoop, Deed).await?);
    db.grow_older(60 * DAY).await;
    all_is_looked_at(&db, &scoop).await?;
    assert!(is_kept(&scoop, &contract).await);
    db.grow_older(40 * DAY).await;
    is_deleted(&scoop, &contract).await;
    db.grow_older(4_000 * DAY).await;
    all_is_looked_at(&db, &scoop).await?;
    assert!(is_kept(&scoop, &deed).await);

    let by_hand = scoop.operate().retention().prune().older_than(100 * DAY);
    assert_eq!(by_hand.dry_run().await?.hierarchies, 1);
    assert_eq!(scoop.operate().retention().prune().older_than(100 * DAY).await?.hierarchies, 1);
    assert!(!is_kept(&scoop, &deed).await);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_of_a_message_type_has_its_own_time() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default(), keep()).await?;
    let invoices = [
        ended(&scoop, Invoice(Plan::Commit)).await?,
        ended(&scoop, Invoice(Plan::Fail)).await?,
        ended(&scoop, Invoice(Plan::FailToRollBack)).await?,
    ];
    let reminders =
        [ended(&scoop, Reminder(Plan::Commit)).await?, ended(&scoop, Reminder(Plan::Fail)).await?];
    let kept = async || {
        let mut kept = vec![];
        for letter in invoices.iter().chain(&reminders) {
            kept.push(is_kept(&scoop, letter).await);
        }
        kept
    };
    db.grow_older(11 * DAY).await;
    all_is_looked_at(&db, &scoop).await?;
    assert_eq!(kept().await, [true; 5], "19 days are over");
    db.grow_older(2 * DAY).await;
    is_deleted(&scoop, &invoices[1]).await;
    is_deleted(&scoop, &reminders[0]).await;
    assert_eq!(kept().await, [true, false, true, false, true], "21 days are over");
    db.grow_older(10 * DAY).await;
    is_deleted(&scoop, &reminders[1]).await;
    assert_eq!(kept().await, [true, false, true, false, false], "31 days are over");
    db.grow_older(30 * DAY).await;
    is_deleted(&scoop, &invoices[0]).await;
    db.grow_older(4_000 * DAY).await;
    all_is_looked_at(&db, &scoop).await?;
    assert_eq!(kept().await, [false, false, true, false, false], "it awaits an operator");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn longest_time_of_the_handlers_of_a_message_counts() -> Result<()> {
    let db = Database::new().await;
    let books = db.scoop().retention(Retention::forever()).only::<Books>().start().await?;
    let scoop = start(&db, &Gate::default(), keep()).await?;
    let (order, contract) = (ended(&scoop, Order::Commits).await?, ended(&scoop, Contract).await?);
    books.shutdown().await?;
    db.grow_older(100 * DAY).await;
    is_deleted(&scoop, &contract).await;
    assert!(is_kept(&scoop, &order).await);

    scoop.operate().handlers().retire("kept.order", "kept-books").await?;
    is_deleted(&scoop, &order).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn shorter_time_counts_for_what_was_kept_before() -> Result<()> {
    let db = Database::new().await;
    let year = keep().committed(365 * DAY).rolled_back(365 * DAY);
    let scoop = start(&db, &Gate::default(), year).await?;
    let (order, contract) = (ended(&scoop, Order::Commits).await?, ended(&scoop, Contract).await?);
    db.grow_older(100 * DAY).await;
    is_deleted(&scoop, &contract).await;
    assert!(is_kept(&scoop, &order).await);
    scoop.shutdown().await?;
    let scoop = start(&db, &Gate::default(), keep()).await?;
    is_deleted(&scoop, &order).await;
    Ok(())
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "kept.alarm", retention = "10 days")]
struct Alarm;

#[tokio::test(flavor = "multi_thread")]
async fn signals_are_deleted_a_week_after_their_time() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default(), keep()).await?;
    scoop.signal(Alarm, "7").await?;
    db.grow_older(16 * DAY).await;
    all_is_looked_at(&db, &scoop).await?;
    let rest = async || {
        Ok::<_, OperateError>(scoop.operate().retention().prune().older_than(DAY).dry_run().await?.signals)
    };
    eventually("the signal is deleted", async || rest().await.is_ok_and(|signals| signals == 0)).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unique_key_outlives_its_hierarchy_by_the_given_time() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Gate::default(), keep().unique_keys(90 * DAY)).await?;
    let launch = async || scoop.launch(Order::Commits).unique("order 7").await;
    let order = launch().await?;
    order.ends().await?;
    db.grow_older(60 * DAY).await;
    is_deleted(&scoop, &order).await;
    let again = launch().await?;
    assert_eq!(again.id(), order.id());
    let gone = again.wait().await.expect_err("it is gone");
    assert!(gone.is_not_found() && gone.to_string().starts_with("there is no message "), "{gone}");
    let kept = scoop.find_by_key::<Order>("order 7").await.err().expect("it is gone");
    let Some(until) = kept.key_valid_until() else { panic!("{kept:?}") };
    let left = until.duration_since(db.time().await).unwrap_or_default();
    assert!((29 * DAY..=30 * DAY).contains(&left), "{kept}");
    assert!(
        kept.to_string().contains("with the key `order 7` was deleted, and its key is kept until "),
        "{kept}"
    );
    assert!(scoop.find(again.id()).await.is_err());
    db.grow_older(20 * DAY).await;
    assert_eq!(scoop.operate().retention().prune().older_than(DAY).dry_run().await?.unique_keys, 0);
    db.grow_older(11 * DAY).await;
    // Before the key is deleted, the launch does nothing.
    let is_new = async || Ok::<_, RuntimeError>(launch().await?.wait().await? == Outcome::Committed);
    eventually("the key is deleted", async || is_new().await.unwrap_or_default()).await;
    assert_eq!(scoop.operate().retention().prune().older_than(DAY).dry_run().await?.unique_keys, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn times_below_an_hour_are_refused() -> Result<()> {
    let db = Database::new().await;
    let hour = Duration::from_secs(3_600);
    for (keep, mistake) in [
        (
            keep().committed(hour - Duration::from_secs(1)),
            "`Retention::committed` is 59 min 59 s, and the least is 1 h 0 min; write `.committed(Duration::from_secs(3600))` or more",
        ),
        (
            keep().committed(hour).rolled_back(Duration::ZERO),
            "`Retention::rolled_back` is 0 ms, and the least is 1 h 0 min; write `.rolled_back(Duration::from_secs(3600))` or more",
        ),
        (
            keep().every(Duration::ZERO),
            "`Retention::every` is 0 ms, and the least is 1 ms; write `.every(Duration::from_millis(1))` or more",
        ),
    ] {
        let refused =
            db.scoop().retention(keep).only::<Contracts>().start().await.err().expect("it is refused");
        assert!(refused.to_string().contains(mistake), "{refused}");
    }
    Ok(())
}
