//! Attempts of a step in which the process died, when another program has another step next.

use scoop::HierarchyId;

use super::attempts_changed::{Fails, goes_on_in, inserted};
use super::*;
use crate::support::{Database, Gate, in_a_process_that_dies};

handler! {
    Hanging(gate): "paying" on Root;
    step "prepare" prepare [finally = tidy] => done();
    step "pay" pay [finally = tidy] => at_gate();

    async fn tidy(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
        Ok(())
    }
}

/// A run with a process that died in the middle of its step `pay`.
async fn left_by_the_dead(db: &Database) -> Result<HierarchyId> {
    let gate = Gate::default();
    in_a_process_that_dies(db, move |builder: scoop::Builder| async move {
        let saga = Hanging { gate: gate.clone() };
        let scoop = builder.only::<Hanging>().provide(saga).start().await?;
        let root = scoop.launch(Root).await?.id();
        gate.arrivals(1).await;
        Ok((scoop, root))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn attempt_in_which_the_process_died_does_not_count_for_a_step_inserted_in_front() -> Result<()> {
    let db = Database::new().await;
    let root = left_by_the_dead(&db).await?;
    let (outcome, notes) = goes_on_in::<inserted::Paying>(&db, root, Fails("check", 1)).await?;
    assert_eq!(outcome, Outcome::Committed);
    assert_eq!(notes, ["check 0", "check 1", "tidy check", "pay 0", "tidy pay"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_cleans_up_after_the_step_in_which_the_process_died() -> Result<()> {
    let db = Database::new().await;
    let root = left_by_the_dead(&db).await?;
    db.client().cancel(root, "enough").await?;
    let (outcome, notes) = goes_on_in::<inserted::Paying>(&db, root, Fails("", 0)).await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
    assert_eq!(notes, ["tidy pay"]);
    Ok(())
}
