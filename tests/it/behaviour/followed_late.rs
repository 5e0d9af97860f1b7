//! The live stream of recorded events, beside transactions that commit late.

use std::collections::BTreeSet;
use std::time::Duration;

use super::followed::begun;
use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "followed-late.order")]
struct Order;

handler! {
    Orders: "orders" on Order;
    step "place" place => done();
}

/// Launches in transactions that stay open, one in a savepoint, while others commit.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_transactions_that_commit_late_come_once() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Orders>().start().await?;
    let mut events = begun(scoop.operate().events().interval(Duration::from_millis(10)).follow()).await;
    let mut late = db.pool().begin().await?;
    let held = scoop.launch(Order).in_transaction(&mut late).await?;
    sqlx::query("SAVEPOINT within").execute(&mut *late).await?;
    let within = scoop.launch(Order).in_transaction(&mut late).await?;
    sqlx::query("RELEASE SAVEPOINT within").execute(&mut *late).await?;
    let mut expected = BTreeSet::from([held.id(), within.id()]);
    let mut read = vec![];
    for _ in 0..20 {
        let order = scoop.launch(Order).await?;
        expected.insert(order.id());
        assert_eq!(order.ends().await?, Outcome::Committed);
        // each has four events: EMITTED, SEEN, SUSPENDED, COMMITTED
        for _ in 0..4 {
            read.push(events.next().await.expect("nothing has shut down")?);
        }
        assert!(read.iter().all(|event| event.hierarchy != held.id() && event.hierarchy != within.id()));
    }
    late.commit().await?;
    for order in [&held, &within] {
        assert_eq!(scoop.find(order.id()).await?.ends().await?, Outcome::Committed);
    }
    for _ in 0..8 {
        read.push(events.next().await.expect("nothing has shut down")?);
    }
    let ids: BTreeSet<_> = read.iter().map(|event| event.id).collect();
    assert_eq!((ids.len(), read.len()), (88, 88), "each event once");
    assert_eq!(read.iter().map(|event| event.hierarchy).collect::<BTreeSet<_>>(), expected);
    scoop.shutdown().await?;
    Ok(())
}
