//! Limits of the queue of a saga, with several processes that launch.

use std::time::Duration;

use futures_util::future::join_all;
use scoop::pauses::PauseTarget;

use super::*;
use crate::support::{Database, eventually};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.item")]
struct Item;

#[derive(Default)]
struct Items;

#[saga(name = "queued-items", queue = 40)]
#[subscribes(Item)]
impl Items {
    #[step]
    async fn count(&self, scope: &mut Scope<'_>, _: &Item) -> Result<()> {
        sqlx::query("SELECT pg_sleep(0.003)").execute(scope.tx().await?).await?;
        Ok(())
    }
}

/// The same saga in a newer program, with a queue of one.
#[derive(Default)]
struct OneItem;

#[saga(name = "queued-items", queue = 1)]
#[subscribes(Item)]
impl OneItem {
    #[step]
    async fn count(&self, _: &mut Scope<'_>, _: &Item) -> Result<()> {
        Ok(())
    }
}

/// The same saga in an older program, without a limit.
#[derive(Default)]
struct AnyItems;

#[saga(name = "queued-items")]
#[subscribes(Item)]
impl AnyItems {
    #[step]
    async fn count(&self, _: &mut Scope<'_>, _: &Item) -> Result<()> {
        Ok(())
    }
}

/// A client as in a process of its own.
async fn client(db: &Database) -> Scoop {
    Scoop::client(db.another_pool(4).await)
}

/// A program whose items wait.
async fn paused(db: &Database) -> Result<Scoop> {
    let scoop = db.scoop().only::<Items>().start().await?;
    assert!(scoop.operate().pauses().pause(PauseTarget::Everything).await?.in_force);
    Ok(scoop)
}

const LENGTH: &str = "SELECT count(*) FROM scoop.run WHERE handler = 'queued-items' AND state = 'ready'";

#[tokio::test(flavor = "multi_thread")]
async fn launches_of_one_process_keep_the_queue_within_its_limit() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    let client = client(&db).await;
    for round in 0..4 {
        let launches = (0..60).map(|_| client.launch(Item).into_future());
        let full = " is full: at most 40 of its runs wait for a worker, and a message on topic ";
        let launched = join_all(launches).await.into_iter().filter(|launched| match launched {
            Ok(_) => true,
            Err(error) if error.is_queue_full() && error.to_string().contains(full) => false,
            Err(error) => panic!("{error}"),
        });
        let (launched, length) = (launched.count(), db.number(LENGTH).await);
        assert!((1..=40).contains(&length), "round {round}: {launched} launched, {length} wait");
    }
    eventually("the queue is full", async || {
        let _ = client.launch(Item).await;
        let length = db.number(LENGTH).await;
        assert!(length <= 40, "{length}");
        length == 40
    })
    .await;
    assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 40, "refused launches store nothing");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_launch_at_once_exceed_the_limit_by_no_more_than_their_launches() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    let clients = [client(&db).await, client(&db).await];
    eventually("the queue is full", async || {
        let launches =
            clients.iter().flat_map(|client| (0..10).map(move |_| client.launch(Item).into_future()));
        join_all(launches).await;
        db.number(LENGTH).await >= 40
    })
    .await;
    // Ten of each are under way at once, and each uses a sixteenth of the room without a further count.
    let length = db.number(LENGTH).await;
    assert!(length <= 40 + 10 + 2, "{length} wait");
    scoop.shutdown().await?;
    Ok(())
}

/// The largest number of runs that waited at once, by their events.
async fn longest(db: &Database) -> i64 {
    db.number(
        "WITH run AS (
             SELECT min(created_at) FILTER (WHERE type = 'EMITTED') AS since, min(created_at) FILTER (WHERE type = 'SEEN') AS until
             FROM scoop.message_event GROUP BY message_id
         )
         SELECT max((SELECT count(*) FROM run other WHERE other.since <= run.since AND other.until > run.since)) FROM run",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn launches_of_one_process_wait_for_capacity_while_workers_claim() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Items>().concurrency(3).start().await?;
    let client = client(&db).await;
    let launch = |_| client.launch(Item).wait_for_capacity(Duration::from_secs(600)).into_future();
    for item in join_all((0..300).map(launch)).await {
        assert_eq!(item?.ends().await?, Outcome::Committed);
    }
    let longest = longest(&db).await;
    assert!((20..=40).contains(&longest), "{longest} runs waited at once");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn client_learns_of_a_limit_and_of_its_end() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<AnyItems>().start().await?;
    assert!(scoop.operate().pauses().pause(PauseTarget::Everything).await?.in_force);
    let client = self::client(&db).await;
    for _ in 0..3 {
        client.launch(Item).await?;
    }
    let newer = db.scoop().only::<OneItem>().start().await?;
    let stranger = self::client(&db).await;
    let Err(refused) = stranger.launch(Item).await else { panic!("the first launch of a client") };
    assert!(refused.is_queue_full() && refused.to_string().contains(": at most 1 of its runs"), "{refused}");
    eventually("a client that launches learns it, too", async || client.launch(Item).await.is_err()).await;
    let newest = db.scoop().only::<AnyItems>().start().await?;
    for client in [&client, &stranger] {
        eventually("the limit has ended", async || client.launch(Item).await.is_ok()).await;
    }
    for scoop in [scoop, newer, newest] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_in_a_transaction_counts_from_its_commit() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    let client = client(&db).await;
    client.launch_all((0..39).map(|_| Item)).await?;
    let (mut one, mut other) = (db.pool().begin().await?, db.pool().begin().await?);
    client.launch(Item).in_transaction(&mut one).await?;
    client.launch(Item).in_transaction(&mut other).await?;
    other.rollback().await?;
    assert_eq!(db.number(LENGTH).await, 39);
    one.commit().await?;
    assert_eq!(db.number(LENGTH).await, 40);
    let mut third = db.pool().begin().await?;
    let launch =
        client.launch(Item).wait_for_capacity(Duration::from_secs(600)).in_transaction(&mut third).await;
    let Err(refused) = launch else { panic!("it was launched") };
    let text = refused.to_string();
    assert!(refused.is_queue_full() && text.contains(": at most 40 of its runs"), "without a wait: {text}");
    scoop.shutdown().await?;
    Ok(())
}
