//! Signals in transactions of a client, from several programs at once, and in a rebuild.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use super::*;
use crate::support::Database;

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Order {
    number: i64,
}

#[derive(Signal, Serialize, Deserialize)]
struct Paid;

handler! {
    Shipping: "shipping" on Order;
    #[step(name = "ship", awaits(Paid, by = number))]
    async fn ship(&self, _: &mut Scope<'_>, _: &Order, _: &Paid) -> Result<()> {
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, order: &Order) -> Result<String> {
        Ok(order.number.to_string())
    }
}

fn awaits(tree: &Tree) -> bool {
    tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal)
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_a_signal_of_its_process_reaches_begins_without_a_claim() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Shipping>().start().await?;
    let orders = scoop.launch_all([Order { number: 7 }, Order { number: 7 }]).await?;
    for order in &orders {
        order.comes_to(awaits).await?;
    }
    // A claim takes runs whose signal has been delivered before.
    db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no claim is allowed'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON scoop.run FOR EACH ROW
             WHEN (old.state = 'ready' AND new.state = 'running' AND old.signal IS NULL) EXECUTE FUNCTION refuse()",
    )
    .await;
    assert_eq!(scoop.signal(Paid, "7").await?, 2);
    for order in &orders {
        assert_eq!(order.ends().await?, Outcome::Committed);
    }
    Ok(())
}

/// Whichever commits last, the signal or the wait, finds the other.
#[tokio::test(flavor = "multi_thread")]
async fn signals_and_waits_at_the_same_time_meet() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Shipping>().poll_interval(NEVER).start().await?;
    let other = Scoop::builder().postgres(db.another_pool(6).await).only::<Shipping>();
    let other = other.poll_interval(NEVER).start().await?;
    for round in 0..10 {
        let numbers = || round * 20..round * 20 + 20;
        let orders = try_join_all(numbers().map(async |number| scoop.launch(Order { number }).await));
        let sent = join_all(numbers().map(async |number| other.signal(Paid, number.to_string()).await));
        let (orders, sent) = tokio::join!(orders, sent);
        sent.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
        for order in orders? {
            assert_eq!(order.ends().await?, Outcome::Committed);
        }
    }
    let once = "SELECT count(*) FROM scoop.signal WHERE delivered_at IS NOT NULL AND reached = 1";
    assert_eq!(db.number(once).await, 200);
    other.shutdown().await?;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_in_a_transaction_comes_with_its_commit() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Shipping>().poll_interval(NEVER).start().await?;
    let order = scoop.launch(Order { number: 7 }).await?;
    order.comes_to(awaits).await?;
    let mut tx = db.pool().begin().await?;
    assert!(scoop.signal(Paid, "7").in_transaction(&mut tx).await?);
    tx.rollback().await?;
    let mut tx = db.pool().begin().await?;
    let id = order.id().uuid();
    assert!(scoop.signal(Paid, "7").id(id).in_transaction(&mut tx).await?);
    assert!(!scoop.signal(Paid, "7").id(id).in_transaction(&mut tx).await?, "it is a repetition");
    tx.commit().await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    Ok(())
}

/// A run that awaits a signal is rebuilt as it was, and one that has got its signal goes on.
#[tokio::test(flavor = "multi_thread")]
async fn wait_for_a_signal_follows_from_the_record() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Shipping>().poll_interval(NEVER).start().await?;
    let orders = [scoop.launch(Order { number: 7 }).await?, scoop.launch(Order { number: 8 }).await?];
    for order in &orders {
        order.comes_to(awaits).await?;
    }
    scoop.shutdown().await?;
    let client = db.client();
    client.signal(Paid, "7").await?;
    let report = client.rebuild_working_set().await?;
    assert_eq!((report.before, report.after), (2, 2));
    assert_eq!(db.texts("SELECT signal_key FROM scoop.run WHERE signal IS NOT NULL").await, ["8"]);
    let scoop = db.scoop().only::<Shipping>().poll_interval(NEVER).start().await?;
    let [seventh, eighth] = &orders;
    assert_eq!(scoop.find(seventh.id()).await?.ends().await?, Outcome::Committed);
    assert_eq!(scoop.signal(Paid, "8").await?, 1);
    assert_eq!(scoop.find(eighth.id()).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}
