//! Parents that resume in the process in which their last child ended, without a claim.

use std::time::Duration;

use super::*;
use crate::support::{Database, Gate, eventually};

handler! {
    Above { second: Gate }: "above" on Root;
    step "first" first => launches(Child);

    #[step]
    async fn second(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
        self.second.pass().await;
        Ok(())
    }
}

handler! {
    Below(gate): "below" on Child;
    step "step" step => at_gate();
}

/// A program with both sagas, which claims only when notified.
fn program(db: &Database, below: &Gate, second: &Gate) -> scoop::Builder {
    let scoop = db.scoop().only::<Above>().only::<Below>().poll_interval(Duration::from_secs(3600));
    scoop.provide(Below { gate: below.clone() }).provide(Above { second: second.clone() })
}

/// Makes all claims fail from now on.
async fn forbid_claims(db: &Database) {
    db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no claim is allowed'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON scoop.run FOR EACH ROW
             WHEN (old.state = 'ready' AND new.state = 'running') EXECUTE FUNCTION refuse()",
    )
    .await;
}

const COURSE: &str = "M0 EMITTED · ·
    M0 SEEN above ·
    M1 EMITTED above first
    M0 SUSPENDED above first next=1
    M1 SEEN below ·
    M1 SUSPENDED below step
    M1 COMMITTED below step
    M0 SUSPENDED above second
    M0 COMMITTED above second";

const READY: &str =
    "SELECT count(*) FROM scoop.run WHERE state = 'ready' AND owner IS NULL AND handler = 'above'";

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_goes_on_without_a_claim() -> Result<()> {
    let db = Database::new().await;
    let (below, second) = (Gate::default(), Gate::default());
    let scoop = program(&db, &below, &second).start().await?;
    let root = scoop.launch(Root).await?;
    below.arrivals(1).await;
    forbid_claims(&db).await;
    below.open(1);
    second.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    db.history().await.expect(COURSE);
    Ok(())
}

/// Its child leaves it the only slot, which others wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_parent_goes_on_in_the_slot_of_its_child() -> Result<()> {
    let db = Database::new().await;
    let (below, second) = (Gate::default(), Gate::default());
    let scoop = program(&db, &below, &second).concurrency(1).start().await?;
    let root = scoop.launch(Root).await?;
    below.arrivals(1).await;
    let others = scoop.launch_all([Child, Child]).await?;
    below.open(1);
    second.arrivals(1).await;
    assert_eq!(below.arrived(), 0, "another run got the slot");
    second.open(1);
    below.open(2);
    assert_eq!(root.ends().await?, Outcome::Committed);
    for other in others {
        assert_eq!(other.ends().await?, Outcome::Committed);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_of_another_program_goes_on_there() -> Result<()> {
    let db = Database::new().await;
    let (below, second) = (Gate::default(), Gate::default());
    let above = db.start((Above { second: second.clone() },)).await?;
    let elsewhere = Scoop::builder().postgres(db.another_pool(5).await).only::<Below>();
    let _elsewhere = elsewhere.provide(Below { gate: below.clone() }).start().await?;
    below.open(1);
    second.open(1);
    assert_eq!(above.launch(Root).await?.ends().await?, Outcome::Committed);
    db.history().await.expect(COURSE);
    Ok(())
}

/// Its last child ends during the shutdown. The parent is left to other programs.
#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_is_woken_in_the_moment_of_the_stop_is_left_to_others() -> Result<()> {
    let db = Database::new().await;
    let (below, second) = (Gate::default(), Gate::default());
    let scoop = program(&db, &below, &second).start().await?;
    let root = scoop.launch(Root).await?;
    below.arrivals(1).await;
    let mut tx = db.pool().begin().await?;
    sqlx::query("SELECT FROM scoop.run WHERE handler = 'above' FOR UPDATE").execute(&mut *tx).await?;
    below.open(1);
    let held_up = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("the question is held up", async || db.number(held_up).await > 0).await;
    let asked = tokio::time::timeout(Duration::from_millis(1), scoop.shutdown()).await;
    assert!(asked.is_err(), "the question is still under way");
    tx.commit().await?;
    scoop.shutdown().await?;
    assert_eq!((db.number(READY).await, second.arrived()), (1, 0));
    assert_eq!(db.number("SELECT count(*) FROM scoop.worker").await, 0);

    second.open(1);
    let heir = program(&db, &below, &second).start().await?;
    assert_eq!(heir.find(root.id()).await?.ends().await?, Outcome::Committed);
    Ok(())
}

/// An unregistered worker (presumed dead) owns no runs.
#[tokio::test(flavor = "multi_thread")]
async fn parent_woken_by_an_unregistered_worker_is_left_to_others() -> Result<()> {
    let db = Database::new().await;
    let (below, second) = (Gate::default(), Gate::default());
    let scoop = program(&db, &below, &second).start().await?;
    let root = scoop.launch(Root).await?;
    below.arrivals(1).await;
    db.execute("DELETE FROM scoop.worker").await;
    below.open(1);
    eventually("the parent is ready", async || db.number(READY).await == 1).await;
    assert_eq!(second.arrived(), 0);
    second.open(1);
    let heir = Scoop::builder().postgres(db.another_pool(5).await).only::<Above>();
    let heir = heir.provide(Above { second: second.clone() }).start().await?;
    assert_eq!(heir.find(root.id()).await?.ends().await?, Outcome::Committed);
    Ok(())
}

/// Three parents without children, which no program here can claim. The sweep finds the second one between the others.
const PARENTS: &str =
    "INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, state, epoch, last_event_at)
     SELECT id, id, ARRAY[id, id], id, 'nowhere', 'absent', 'waiting', 2, clock_timestamp()
     FROM unnest(ARRAY['00000000-0000-0000-0000-000000000001', '70000000-0000-0000-0000-000000000002',
                       'f0000000-0000-0000-0000-000000000003']::uuid[]) id";

/// The second of them is woken, claimed and settled, and waits for a child.
const GOES_ON: &str = "UPDATE scoop.run SET epoch = epoch + 2 WHERE id::text LIKE '%2';
     INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, last_event_at)
     SELECT root, child, id, ARRAY[root, id, child], child, 'nowhere', 'absent', last_event_at
     FROM (SELECT *, gen_random_uuid() AS child FROM scoop.run WHERE id::text LIKE '%2') parent";

/// The sweep is held up by others before it comes to the parent, which goes on meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn parent_that_waits_again_is_not_woken_by_the_sweep() -> Result<()> {
    let db = Database::new().await;
    let idle = || program(&db, &Gate::default(), &Gate::default());
    idle().start().await?.shutdown().await?;
    db.execute(PARENTS).await;
    let mut tx = db.pool().begin().await?;
    sqlx::query("SELECT FROM scoop.run WHERE state = 'waiting' AND id::text NOT LIKE '%2' FOR UPDATE")
        .execute(&mut *tx)
        .await?;
    let starting = tokio::spawn(idle().start());
    let held_up = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("the sweep is held up", async || db.number(held_up).await > 0).await;
    db.execute(GOES_ON).await;
    tx.commit().await?;
    starting.await.expect("it starts")?.shutdown().await?;
    let states = "SELECT state::text FROM scoop.run WHERE handler = 'absent' AND parent IS NULL ORDER BY id";
    assert_eq!(db.texts(states).await, ["ready", "waiting", "ready"]);
    Ok(())
}
