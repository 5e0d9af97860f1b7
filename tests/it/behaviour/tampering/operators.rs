//! Rows of what operators have done changed, copied and deleted at random: runs that could not be undone are listed
//! until that is decided, and messages that were delivered later stay delivered. Of a damaged list of these runs the rest is shown.

use super::*;

const HIERARCHIES: u32 = 24;

#[derive(Message, Serialize, Deserialize)]
struct Vase;

handler! {
    /// It cannot be undone, however often that is tried.
    Fall: "fall" on Vase;
    step "drop_it" drop_it [rollback = mend] => done();
    step "fail" fail => fails(SIMULATED);
    rollback mend => fails(SIMULATED);
}

#[test]
fn damaged_rows_of_repairs_and_redeliveries_hurt_no_other_hierarchy() -> Result<()> {
    without_panics(async {
        for seed in seeds() {
            repairs_are_damaged(seed).await?;
        }
        Ok(())
    })
}

async fn repairs_are_damaged(seed: u64) -> Result<()> {
    let (db, gate, mut dice) = (Database::new().await, Gate::default(), Dice(seed));
    db.drop_rules().await;
    gate.open(1_000_000);
    let late = db.client().launch_all((0..HIERARCHIES).map(|_| Weight(1.0))).await?;
    let builder = db.scoop().only::<Assembly>().only::<Supply>().provide(Supply { gate });
    let scoop = builder.only::<Fall>().only::<Idle>().start().await?;
    assert_eq!(scoop.redeliver::<Weight>().await?.hierarchies.len(), late.len());
    let fallen = scoop.launch_all((0..HIERARCHIES).map(|_| Vase)).await?;
    for root in fallen.iter().chain(&late) {
        root.ends().await?;
    }
    for failed in scoop.failed_rollbacks().limit(1_000).await? {
        scoop.retry(failed.id()).await?;
    }
    let failures = "SELECT count(*) FROM scoop.message_event WHERE type = 'ROLLBACK_FAILED'";
    let failed_again = async || db.number(failures).await == 2 * i64::from(HIERARCHIES);
    crate::support::eventually("all failed again", failed_again).await;

    let columns = Columns::of(&db, &["intervention"]).await;
    let mut tampered = vec![];
    for root in fallen {
        tampered.push(tamper(&db, &mut dice, &columns, root).await);
    }
    let columns = Columns::of(&db, &["redelivery"]).await;
    for root in late {
        let Tampered { root, damage } = tamper(&db, &mut dice, &columns, root).await;
        root.tree().await?;
        assert_eq!(root.ends().await?, Outcome::Committed, "seed {seed}: {damage}");
    }
    scoop.redeliver::<Weight>().await?;

    for it in &tampered {
        it.root.tree().await?;
    }
    for failed in scoop.failed_rollbacks().limit(1_000).await? {
        // It may refuse what it cannot read: then the run stays on the list.
        let _ = scoop.resolve(failed.id(), "glued").await;
    }
    let left = are_settled(&scoop, tampered).await;
    assert!(left.is_empty(), "{seed}");
    are_healthy(&scoop).await?;
    comes_to_rest(&db, IDLE_TRANSACTIONS).await;
    scoop.shutdown().await?;
    Ok(())
}

#[test]
fn rest_of_a_damaged_list_of_failed_rollbacks_is_shown() -> Result<()> {
    without_panics(async {
        for seed in seeds() {
            list_is_damaged(seed).await?;
        }
        Ok(())
    })
}

async fn list_is_damaged(seed: u64) -> Result<()> {
    let (db, mut dice) = (Database::new().await, Dice(seed));
    let scoop = db.scoop().only::<Fall>().start().await?;
    let fallen = scoop.launch_all((0..HIERARCHIES).map(|_| Vase)).await?;
    for root in &fallen {
        root.ends().await?;
    }
    let columns = Columns::of(&db, &["run"]).await;
    for root in fallen {
        tamper(&db, &mut dice, &columns, root).await;
    }
    assert!(!scoop.failed_rollbacks().limit(1_000).await?.is_empty(), "seed {seed}");
    scoop.operate().runs().count().await?;
    scoop.shutdown().await?;
    Ok(())
}
