//! Finished hierarchies that the database refuses to delete.

use std::time::Duration;

use scoop::Handle;
use scoop::retention::Retention;

use super::*;
use crate::support::{Database, eventually};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "refused.order")]
struct Order;

handler! {
    Orders: "refused-orders" on Order;
    step "pack" pack => done().silently();
}

/// Notes of the user about messages: what has one cannot be deleted.
async fn with_notes() -> Database {
    let db = Database::new().await;
    db.execute("CREATE TABLE note (message uuid REFERENCES scoop.message (id))").await;
    db
}

async fn note(db: &Database, order: &Handle) {
    db.execute(&format!("INSERT INTO note VALUES ('{}')", order.message_id())).await;
}

async fn start(db: &Database, keep: Retention) -> Result<Scoop> {
    Ok(db.scoop().retention(keep).only::<Orders>().start().await?)
}

async fn orders<const N: usize>(scoop: &Scoop) -> Result<[Handle; N]> {
    let mut orders = vec![];
    for _ in 0..N {
        let order = scoop.launch(Order).await?;
        assert_eq!(order.ends().await?, Outcome::Committed);
        orders.push(order);
    }
    Ok(orders.try_into().ok().expect("as many"))
}

async fn is_deleted(scoop: &Scoop, order: &Handle) {
    eventually("it is deleted", async || scoop.find(order.id()).await.is_err()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_with_a_foreign_key_of_the_user_is_kept_and_others_are_deleted() -> Result<()> {
    let db = with_notes().await;
    let scoop = start(&db, Retention::default().every(Duration::from_millis(20))).await?;
    let all: [_; 20] = orders(&scoop).await?;
    let (noted, others): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(at, _)| at % 7 == 3);
    for (_, order) in &noted {
        note(&db, order).await;
    }
    db.grow_older(8 * DAY).await;
    for (_, order) in &others {
        is_deleted(&scoop, order).await;
    }
    let is_listed = async || {
        scoop.operate().retention().undeletable().limit(10).await.is_ok_and(|kept| kept.len() == noted.len())
    };
    eventually("they are listed", is_listed).await;
    for kept in scoop.operate().retention().undeletable().limit(10).await? {
        assert!(noted.iter().any(|(_, order)| order.id() == kept.hierarchy), "{kept:?}");
        assert_eq!(kept.topic, "refused.order");
        assert!(kept.error.contains("violates foreign key constraint"), "{kept:?}");
        let (_, order) =
            noted.iter().find(|(_, order)| order.id() == kept.hierarchy).expect("it is one of them");
        let key = format!("Key (id)=({}) is still referenced from table \"note\"", order.message_id());
        assert!(kept.error.ends_with(&key) && !kept.error.contains("at line"), "{kept:?}");
        let shown = kept.to_string();
        let begin = format!("hierarchy {} of topic `refused.order` could not be deleted, ", order.id());
        assert!(shown.starts_with(&begin) && shown.contains("; it is tried again from "), "{shown}");
        assert!(kept.failures > 0);
    }
    assert_eq!(scoop.operate().retention().undeletable().limit(1).await?.len(), 1);
    assert_eq!(scoop.operate().retention().undeletable().await?.len(), noted.len());
    let would_be = scoop.operate().retention().prune().older_than(7 * DAY).dry_run().await?;
    let refused = u64::try_from(noted.len())?;
    assert_eq!((would_be.hierarchies, would_be.retained.refused), (0, refused), "{would_be:?}");
    let younger = scoop.operate().retention().prune().older_than(30 * DAY).dry_run().await?;
    assert_eq!((younger.retained.refused, younger.retained.recent), (0, refused), "{younger:?}");

    // What comes later is not held up.
    let [later] = orders(&scoop).await?;
    db.grow_older(8 * DAY).await;
    is_deleted(&scoop, &later).await;
    // Its rows, not the table: that would wait for locks which a deletion in progress has, and has to wait for.
    db.execute("DELETE FROM note").await;
    for (_, order) in &noted {
        is_deleted(&scoop, order).await;
    }
    assert_eq!(scoop.operate().retention().undeletable().limit(10).await?, []);
    scoop.shutdown().await?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 0);
    Ok(())
}

/// The constraint is checked at the commit, after the function has returned.
#[tokio::test(flavor = "multi_thread")]
async fn constraint_that_is_checked_at_the_commit_counts_too() -> Result<()> {
    let db = Database::new().await;
    db.execute(
        "CREATE TABLE note (message uuid REFERENCES scoop.message (id) DEFERRABLE INITIALLY DEFERRED)",
    )
    .await;
    let scoop = start(&db, Retention::default().every(Duration::from_millis(20))).await?;
    let [noted, other] = orders(&scoop).await?;
    note(&db, &noted).await;
    db.grow_older(8 * DAY).await;
    is_deleted(&scoop, &other).await;
    let is_listed =
        async || scoop.operate().retention().undeletable().limit(10).await.is_ok_and(|kept| kept.len() == 1);
    eventually("it is listed", is_listed).await;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn call_by_hand_passes_over_what_is_refused_and_counts_it() -> Result<()> {
    let db = with_notes().await;
    let scoop = start(&db, Retention::forever()).await?;
    let all: [_; 5] = orders(&scoop).await?;
    note(&db, &all[1]).await;
    note(&db, &all[4]).await;
    db.grow_older(60 * DAY).await;
    let pruned = scoop.operate().retention().prune().await?;
    assert_eq!((pruned.hierarchies, pruned.retained.refused, pruned.messages), (3, 2, 3), "{pruned:?}");
    for (at, order) in all.iter().enumerate() {
        assert_eq!(scoop.find(order.id()).await.is_ok(), [1, 4].contains(&at));
    }
    db.execute("DELETE FROM note").await;
    let pruned = scoop.operate().retention().prune().await?;
    assert_eq!((pruned.hierarchies, pruned.retained), (2, Default::default()), "{pruned:?}");
    scoop.shutdown().await?;
    Ok(())
}
