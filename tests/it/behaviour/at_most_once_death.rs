//! A step that runs at most once, in which the process died.

use scoop::Interrupted;

use super::*;
use crate::support::{Database, Gate, in_a_process_that_dies};

handler! {
    Paying(gate): "paying" on Root;
    step "pay" pay [delivery = "at_most_once"] => at_gate();
}

handler! {
    Renamed: "paying" on Root;
    step "charge" charge [delivery = "at_most_once", was = "pay"] => done();
}

/// A run with a process that died in the middle of its step `pay`.
async fn left_by_the_dead(db: &Database) -> Result<scoop::HierarchyId> {
    let gate = Gate::default();
    in_a_process_that_dies(db, move |builder: scoop::Builder| async move {
        let saga = Paying { gate: gate.clone() };
        let scoop = builder.only::<Paying>().provide(saga).start().await?;
        let root = scoop.launch(Root).await?.id();
        gate.arrivals(1).await;
        Ok((scoop, root))
    })
    .await
}

/// The run does not get to the gate again: it ends although the gate stays closed.
#[tokio::test(flavor = "multi_thread")]
async fn step_in_which_the_process_died_does_not_run_again() -> Result<()> {
    let db = Database::new().await;
    let root = left_by_the_dead(&db).await?;
    let gate = Gate::default();
    let scoop = db.start((Paying { gate: gate.clone() },)).await?;
    let outcome = scoop.find(root).await?.ends().await?;
    let Outcome::RolledBack(why) = outcome else { panic!("{outcome:?}") };
    assert!(why.find::<Interrupted>().is_some(), "{why}");
    assert_eq!(gate.arrived(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_step_in_which_the_process_died_does_not_run_again() -> Result<()> {
    let db = Database::new().await;
    let root = left_by_the_dead(&db).await?;
    let scoop = db.start((Renamed,)).await?;
    let outcome = scoop.find(root).await?.ends().await?;
    let Outcome::RolledBack(why) = outcome else { panic!("{outcome:?}") };
    let interrupted = why.find::<Interrupted>().expect("the failure says so");
    assert_eq!(interrupted.step, "charge");
    Ok(())
}
