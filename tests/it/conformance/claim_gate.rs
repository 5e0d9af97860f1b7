//! When a worker looks for new work (scenarios RG).
//!
//! In the reference implementation a gate decides this. Here the working set has an index of ready runs, and three
//! components replace the gate. The claimer goes on while there is more, and again when notified. The timer knows
//! the next time in the database. Polling finds work without a notification.
//!
//! * RG-01 (a gate that is always open) cannot exist: nothing has to be kept shut.
//! * RG-02 (a new gate looks a few times): a start finds the work that was there before.
//! * RG-03 (a mark opens the gate): `pn_01`, with polling switched off.
//! * RG-04, RG-05, RG-06, RG-07: below.

use std::time::Duration;

use super::*;
use crate::support::{Database, Gate, calls_of, eventually};

const NEVER: Duration = Duration::from_secs(3_600);

handler! {
    Worker(gate): "worker" on Root;
    step "0" zero => at_gate();
}

/// Lists the handler without running it.
async fn list(db: &Database) -> Result<()> {
    let scoop = db.start((Worker { gate: Gate::default() },)).await?;
    scoop.shutdown().await?;
    Ok(())
}

/// RG-02, and RG-04: a look that found something is followed by another, here as long as one slot
/// is too few.
#[tokio::test(flavor = "multi_thread")]
async fn rg_02_rg_04_a_productive_look_is_followed_by_another() -> Result<()> {
    let db = Database::new().await;
    list(&db).await?;
    let client = db.scoop().client().await?;
    let roots = client.launch_all((0..20).map(|_| Root)).await?;
    let gate = Gate::default();
    gate.open(20);
    let scoop = db.scoop().only::<Worker>().provide(Worker { gate }).concurrency(1).poll_interval(NEVER);
    let _scoop = scoop.start().await?;
    for root in roots {
        assert_eq!(root.ends().await?, Outcome::Committed);
        calls_of(&root).expect("invoke worker/0");
    }
    Ok(())
}

/// A commit without a notification: that of a client's transaction.
#[tokio::test(flavor = "multi_thread")]
async fn rg_05_polling_finds_work_without_a_notification() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    gate.open(2);
    let scoop = db.scoop().only::<Worker>().provide(Worker { gate });
    let scoop = scoop.poll_interval(Duration::from_millis(20)).start().await?;
    assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);

    let client = db.scoop().client().await?;
    let mut tx = db.pool().begin().await?;
    let root = client.launch(Root).in_transaction(&mut tx).await?;
    tx.commit().await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

/// All claims are refused for a while, so that every look fails.
#[tokio::test(flavor = "multi_thread")]
async fn rg_06_a_look_that_failed_is_made_again() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = db.scoop().only::<Worker>().provide(Worker { gate: gate.clone() }).poll_interval(NEVER);
    let _scoop = scoop.start().await?;
    let client = db.scoop().client().await?;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN RAISE EXCEPTION 'no claim is allowed'; END $$;
                CREATE TRIGGER refuse BEFORE UPDATE ON scoop.run FOR EACH ROW EXECUTE FUNCTION refuse()";
    let relent = "DROP TRIGGER refuse ON scoop.run";
    db.execute(refuse).await;
    let root = client.launch(Root).await?;
    let failed = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let before = db.number(failed).await;
    eventually("a look fails", async || db.number(failed).await > before).await;
    assert_eq!(gate.arrived(), 0);
    db.execute(relent).await;
    gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

/// Marks that come while a look is under way are not lost: with polling switched off each of many
/// messages, launched one by one from two sides, is found.
#[tokio::test(flavor = "multi_thread")]
async fn rg_07_a_mark_that_arrives_during_a_look_is_not_lost() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    gate.open(100);
    let scoop = db.scoop().only::<Worker>().provide(Worker { gate }).poll_interval(NEVER).start().await?;
    let client = Scoop::builder().postgres(db.another_pool(2).await).client().await?;
    for _ in 0..50 {
        let roots = [scoop.launch(Root).await?, client.launch(Root).await?];
        for root in roots {
            assert_eq!(root.ends().await?, Outcome::Committed);
        }
    }
    Ok(())
}
