//! Messages with a key, which are launched once for any number of launches.

use std::time::Duration;

use scoop::HierarchyId;

use super::*;
use crate::support::{Database, Notes, eventually};

const NEVER: Duration = Duration::from_secs(3_600);

struct Worker {
    notes: Notes,
}

#[saga(name = "worker")]
#[subscribes(Child)]
impl Worker {
    #[step(name = "0")]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
        self.notes.add(scope.message_id().to_string());
        Ok(())
    }
}

struct RootHandler {
    notes: Notes,
}

#[saga(name = "root-handler")]
#[subscribes(Root)]
impl RootHandler {
    #[step(name = "0", retry(max = 1, backoff = "1ms"))]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        let first = scope.detach_unique(Child, "the key").await?;
        let again = scope.detach_unique(Child, "the key").await?;
        assert_eq!((again.hierarchy, again.is_new), (first.hierarchy, false));
        self.notes.add(format!("{} {}", first.hierarchy, first.is_new));
        // The launches of a failed attempt are discarded.
        if scope.attempt() == 0 { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

async fn start(db: &Database, worker: &Notes, root: &Notes) -> Result<Scoop> {
    // Nothing is found by polling within a test.
    let scoop = db.scoop().only::<Worker>().only::<RootHandler>().poll_interval(NEVER);
    let scoop = scoop.provide(Worker { notes: worker.clone() });
    Ok(scoop.provide(RootHandler { notes: root.clone() }).start().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_launches_with_one_key_launch_once() -> Result<()> {
    let db = Database::new().await;
    let notes = Notes::default();
    let scoop = start(&db, &notes, &Notes::default()).await?;
    let client = Scoop::builder().postgres(db.another_pool(4).await).client().await?;
    let mut launches = tokio::task::JoinSet::new();
    for n in 0..20 {
        let scoop = if n % 2 == 0 { scoop.clone() } else { client.clone() };
        launches.spawn(async move { scoop.launch(Child).unique("order 7").await });
    }
    let roots: Vec<_> = launches.join_all().await.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(roots.iter().filter(|root| !root.is_of_earlier_launch()).count(), 1);
    for root in &roots {
        assert_eq!((root.id(), root.message_id()), (roots[0].id(), roots[0].message_id()));
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    assert_eq!(notes.all(), [roots[0].message_id().to_string()]);

    // Long after it has ended as well; and another key or topic is another matter.
    let again = scoop.launch(Child).unique("order 7").await?;
    assert_eq!((again.id(), again.is_of_earlier_launch()), (roots[0].id(), true));
    let others =
        [scoop.launch(Child).unique("order 8").await?, scoop.launch(Finally).unique("order 7").await?];
    assert!(others.iter().all(|other| other.id() != roots[0].id() && !other.is_of_earlier_launch()));
    assert_eq!(others[0].ends().await?, Outcome::Committed);
    assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 3);
    Ok(())
}

/// The second launch waits for the transaction of the first. It takes effect if that is rolled back.
#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_is_rolled_back_leaves_the_key_to_others() -> Result<()> {
    let db = Database::new().await;
    let notes = Notes::default();
    let scoop = start(&db, &notes, &Notes::default()).await?;
    let mut tx = db.pool().begin().await?;
    let given_up = scoop.launch(Child).unique("key").in_transaction(&mut tx).await?;
    let second = tokio::spawn({
        let scoop = scoop.clone();
        async move { scoop.launch(Child).unique("key").await }
    });
    crate::support::eventually("the second one waits", async || {
        db.number("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'").await == 1
    })
    .await;
    tx.rollback().await?;
    let second = second.await??;
    assert_eq!(second.id(), given_up.id());
    assert!(!given_up.is_of_earlier_launch() && !second.is_of_earlier_launch());
    let mut tx = db.pool().begin().await?;
    let third = scoop.launch(Child).unique("key").in_transaction(&mut tx).await?;
    assert!(third.is_of_earlier_launch());
    tx.rollback().await?;
    assert_eq!(second.ends().await?, Outcome::Committed);
    assert_eq!(given_up.ends().await?, Outcome::Committed);
    assert_eq!(notes.all().len(), 1);
    Ok(())
}

/// Each launch waits for a slow transaction of the user. The engine has other connections to work on.
#[tokio::test(flavor = "multi_thread")]
async fn launches_that_wait_for_their_key_do_not_block_others() -> Result<()> {
    let db = Database::new().await;
    let notes = Notes::default();
    let scoop = start(&db, &notes, &Notes::default()).await?;
    let mut tx = db.pool().begin().await?;
    let first = scoop.launch(Child).unique("key").in_transaction(&mut tx).await?;
    let again = |_| {
        let scoop = scoop.clone();
        async move { scoop.launch(Child).unique("key").await }
    };
    let mut given_up: tokio::task::JoinSet<_> = (0..2).map(again).collect();
    let locked = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("two of them wait", async || db.number(locked).await == 2).await;
    // They still wait in the server, although their futures are dropped.
    given_up.shutdown().await;
    let waiting: tokio::task::JoinSet<_> = (0..3).map(again).collect();
    assert_eq!(scoop.launch(Child).await?.ends().await?, Outcome::Committed);
    tx.commit().await?;
    for launched in waiting.join_all().await {
        assert_eq!(launched?.id(), first.id());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_steps_detach_under_one_key_are_launched_once() -> Result<()> {
    let db = Database::new().await;
    let (worker, steps) = (Notes::default(), Notes::default());
    let scoop = start(&db, &worker, &steps).await?;
    for root in [scoop.launch(Root).await?, scoop.launch(Root).await?] {
        assert_eq!(root.ends().await?, Outcome::Committed, "{}", root.tree().await?);
    }
    let said = steps.all();
    let id = said[0].split(' ').next().expect("an id").to_owned();
    assert!(said.iter().all(|line| line.starts_with(&id)), "{said:?}");
    let detached = scoop.find(id.parse::<HierarchyId>()?).await?;
    assert_eq!(detached.ends().await?, Outcome::Committed);
    assert_eq!(worker.all(), [detached.message_id().to_string()]);
    Ok(())
}
