//! Limits of the queue of a saga, with several processes that launch, and which die.

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

const LEASES: &str = "SELECT count(*) FROM scoop.queue_lease";

#[tokio::test(flavor = "multi_thread")]
async fn queue_is_never_longer_than_its_limit() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    let clients = [client(&db).await, client(&db).await];
    for round in 0..4 {
        let launches =
            clients.iter().flat_map(|client| (0..30).map(move |_| client.launch(Item).into_future()));
        let launched = join_all(launches).await.into_iter().filter(|launched| match launched {
            Ok(_) => true,
            Err(RuntimeError::QueueFull { limit: 40, messages: 1, waited: None, .. }) => false,
            Err(error) => panic!("{error}"),
        });
        let (launched, length) = (launched.count(), db.number(LENGTH).await);
        assert!((1..=40).contains(&length), "round {round}: {launched} launched, {length} wait");
    }
    // What one of them holds and does not use, the other one gets.
    eventually("the queue is full", async || {
        let _ = clients[0].launch(Item).await;
        let length = db.number(LENGTH).await;
        assert!(length <= 40, "{length}");
        length == 40
    })
    .await;
    assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 40, "refused launches store nothing");
    scoop.shutdown().await?;
    Ok(())
}

/// The largest number of runs that waited at once, by their events. A place is granted after the claim that made room.
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
async fn queue_is_never_longer_than_its_limit_while_workers_claim() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Items>().concurrency(3).start().await?;
    let clients = [client(&db).await, client(&db).await, scoop.clone()];
    let launch = |client: &Scoop| client.launch(Item).wait_for_room(Duration::from_secs(600)).into_future();
    let launches = clients.iter().flat_map(|client| (0..100).map(move |_| launch(client)));
    for item in join_all(launches).await {
        assert_eq!(item?.ends().await?, Outcome::Committed);
    }
    let longest = longest(&db).await;
    assert!((20..=40).contains(&longest), "{longest} runs waited at once");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn places_of_a_process_that_died_are_free_after_a_while() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    db.execute(
        "INSERT INTO scoop.queue_lease VALUES ('queued-items', gen_random_uuid(), 40, clock_timestamp() + interval '2 s')",
    )
    .await;
    let client = client(&db).await;
    let refused = client.launch(Item).await.map(drop);
    assert!(matches!(&refused, Err(RuntimeError::QueueFull { limit: 40, .. })), "{refused:?}");
    client.launch(Item).wait_for_room(Duration::from_secs(60)).await?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.queue_lease WHERE places = 40").await, 0);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_no_program_writes_count_for_nothing() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    db.execute(
        "ALTER TABLE scoop.queue_lease DROP CONSTRAINT queue_lease_places_check;
         ALTER TABLE scoop.queue_lease ALTER places DROP NOT NULL, ALTER until DROP NOT NULL;
         INSERT INTO scoop.queue_lease (saga, holder, places, until) VALUES
             ('queued-items', gen_random_uuid(), 2147483647, 'infinity'),
             ('queued-items', gen_random_uuid(), 2147483647, '-infinity'),
             ('queued-items', gen_random_uuid(), 2147483647, clock_timestamp() + interval '1 day'),
             ('queued-items', gen_random_uuid(), 2147483647, NULL),
             ('queued-items', gen_random_uuid(), NULL, clock_timestamp() + interval '5 s'),
             ('queued-items', gen_random_uuid(), -2147483648, clock_timestamp() + interval '5 s'),
             ('another', gen_random_uuid(), 2147483647, clock_timestamp() + interval '5 s')",
    )
    .await;
    let client = client(&db).await;
    client.launch_all((0..40).map(|_| Item)).await?;
    let refused = client.launch(Item).await.map(drop);
    assert!(matches!(&refused, Err(RuntimeError::QueueFull { limit: 40, .. })), "{refused:?}");
    assert_eq!(db.number(LENGTH).await, 40);
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
    let refused = stranger.launch(Item).await.map(drop);
    assert!(
        matches!(&refused, Err(RuntimeError::QueueFull { limit: 1, .. })),
        "the first launch of a client: {refused:?}"
    );
    eventually("a client that launches learns it, too", async || client.launch(Item).await.is_err()).await;
    let newest = db.scoop().only::<AnyItems>().start().await?;
    assert_eq!(db.number(LEASES).await, 0);
    for client in [&client, &stranger] {
        eventually("the limit has ended", async || client.launch(Item).await.is_ok()).await;
    }
    for scoop in [scoop, newer, newest] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_in_a_transaction_keeps_its_place_until_the_end_of_that() -> Result<()> {
    let db = Database::new().await;
    let scoop = paused(&db).await?;
    let client = client(&db).await;
    client.launch_all((0..38).map(|_| Item)).await?;
    let (mut one, mut other) = (db.pool().begin().await?, db.pool().begin().await?);
    for tx in [&mut one, &mut other] {
        // A place that the first launch held may not be returned yet.
        client.launch(Item).in_transaction(tx).await?;
    }
    let refused = async |tx: &mut sqlx::PgConnection| {
        let launch = client.launch(Item).wait_for_room(Duration::from_secs(600)).in_transaction(tx).await;
        matches!(launch, Err(RuntimeError::QueueFull { limit: 40, .. }))
    };
    let mut third = db.pool().begin().await?;
    assert!(refused(&mut third).await);
    one.commit().await?;
    assert!(refused(&mut third).await, "its run takes the place");
    other.rollback().await?;
    assert_eq!(db.number(LENGTH).await, 39);
    let launch = client.launch(Item).wait_for_room(Duration::from_secs(60)).await;
    launch.expect("the place of the message that was never launched is free after a while");
    assert_eq!(db.number(LENGTH).await, 40);
    scoop.shutdown().await?;
    Ok(())
}
