//! Signals in transactions of a client, and from several programs at once.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use super::*;
use crate::support::events::Events;
use crate::support::{Database, eventually};

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
async fn locked_signal_holds_up_no_other_and_is_delivered_after_the_lock() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Shipping>().poll_interval(NEVER).start().await?;
    for key in ["7", "8"] {
        assert_eq!(scoop.signal(Paid, key).await?, 0);
    }
    let mut other = db.pool().begin().await?;
    sqlx::query("SELECT FROM scoop.signal WHERE key = '7' FOR UPDATE").execute(&mut *other).await?;
    let held_up = scoop.launch(Order { number: 7 }).await?;
    held_up.comes_to(awaits).await?;
    assert_eq!(scoop.launch(Order { number: 8 }).await?.ends().await?, Outcome::Committed);
    assert!(awaits(&held_up.tree().await?));
    other.rollback().await?;
    assert_eq!(held_up.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test]
async fn signal_that_is_locked_for_long_is_logged_once() -> Result<()> {
    let db = Database::new().await;
    let (events, _guard) = Events::listen();
    let scoop = db.scoop().only::<Shipping>().poll_interval(NEVER).start().await?;
    assert_eq!(scoop.signal(Paid, "7").await?, 0);
    let mut other = db.pool().begin().await?;
    sqlx::query("SELECT FROM scoop.signal WHERE key = '7' FOR UPDATE").execute(&mut *other).await?;
    let held_up = scoop.launch(Order { number: 7 }).await?;
    let logged = || events.of("delivery_locked");
    eventually("it is logged", async || !logged().is_empty()).await;
    // Each delivery waits for the lock under another virtual transaction.
    let waits = "SELECT virtualtransaction FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                 WHERE a.datname = current_database() AND NOT granted";
    let mut deliveries = BTreeSet::new();
    eventually("it is tried again", async || {
        deliveries.extend(db.texts(waits).await);
        deliveries.len() > 2
    })
    .await;
    let [warning] = &logged()[..] else { panic!("it is logged once: {:?}", logged()) };
    assert_eq!((&*warning.fields["key"], warning.metadata.level()), ("7", &tracing::Level::WARN));
    other.rollback().await?;
    assert_eq!(held_up.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
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
             WHEN (old.state = 'ready' AND new.state = 'running' AND (old.awaited).signal IS NULL) EXECUTE FUNCTION refuse()",
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

#[tokio::test(flavor = "multi_thread")]
async fn signal_in_a_transaction_or_without_a_living_program_is_refused_if_no_saga_can_read_it() -> Result<()>
{
    let db = Database::new().await;
    let scoop = db.scoop().only::<Shipping>().start().await?;
    let client = db.client();
    let wrong = || client.operate().runs().signal("paid", serde_json::json!(5), "7");
    let mut tx = db.pool().begin().await?;
    let living = wrong().in_transaction(&mut tx).await.unwrap_err().to_string();
    tx.rollback().await?;
    scoop.shutdown().await?;
    for refused in [living, wrong().await.unwrap_err().to_string()] {
        assert!(
            refused.ends_with("no saga that awaits it can read it: it is a whole number, not null"),
            "{refused}"
        );
    }
    assert_eq!(db.number("SELECT count(*) FROM scoop.signal").await, 0);
    Ok(())
}

/// A signal of another client, in a form that no program can read.
#[tokio::test(flavor = "multi_thread")]
async fn signal_that_no_program_can_read_is_used_up_and_the_run_gets_the_next_one() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Shipping>().poll_interval(NEVER).start().await?;
    let orders = [scoop.launch(Order { number: 7 }).await?, scoop.launch(Order { number: 8 }).await?];
    for order in &orders {
        order.comes_to(awaits).await?;
    }
    db.execute(
        "INSERT INTO scoop.signal (id, name, key, payload, kept_until)
         SELECT gen_random_uuid(), 'paid', key, payload::jsonb, now() + interval '1 hour'
         FROM (VALUES ('7', '1e400'), ('8', repeat('[', 6000) || repeat(']', 6000))) AS bad (key, payload)",
    )
    .await;
    for (order, key) in orders.iter().zip(["7", "8"]) {
        scoop.signal(Paid, key).await?;
        assert_eq!(order.ends().await?, Outcome::Committed, "the good signal was kept for it");
    }
    scoop.shutdown().await?;
    Ok(())
}

/// Calls that wait for a transaction with the same id leave connections to other work.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_for_an_id_hold_no_connection() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Shipping>().start().await?;
    let id = uuid::Uuid::now_v7();
    let mut tx = db.pool().begin().await?;
    assert!(scoop.signal(Paid, "7").id(id).in_transaction(&mut tx).await?);
    let calls: Vec<_> = (0..8).map(|_| tokio::spawn(scoop.signal(Paid, "7").id(id).into_future())).collect();
    // Other work goes on, for more than a second.
    let mut number = 100;
    while db
        .number("SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND state = 'idle in transaction'
                 AND datname = current_database() AND xact_start < clock_timestamp() - interval '1.5 s'")
        .await
        == 0
    {
        let innocent = scoop.launch(Order { number }).await?;
        scoop.signal(Paid, number.to_string()).await?;
        assert_eq!(innocent.ends().await?, Outcome::Committed);
        number += 1;
        let waits = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                     WHERE a.datname = current_database() AND l.waitstart < clock_timestamp() - interval '0.5 s'";
        assert_eq!(db.number(waits).await, 0, "a statement waits for the id");
    }
    tx.commit().await?;
    let order = scoop.launch(Order { number: 7 }).await?;
    assert_eq!(order.ends().await?, Outcome::Committed);
    for call in calls {
        assert!(call.await.expect("it does not panic")? <= 1);
    }
    assert_eq!(db.number("SELECT count(*) FROM scoop.signal WHERE key = '7'").await, 1);
    scoop.shutdown().await?;
    Ok(())
}
