//! A claim that is under way when the program begins to stop.

use std::time::Duration;

use super::*;
use crate::support::{Database, Gate, eventually};

handler! {
    RootHandler(gate): "root-handler" on Root;
    step "0" zero => at_gate();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_is_begun_after_the_request_to_stop() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = db.start((RootHandler { gate: gate.clone() },)).await?;

    // Holds the claim up, in the database.
    let mut tx = db.pool().begin().await?;
    sqlx::query("LOCK TABLE scoop.run IN EXCLUSIVE MODE").execute(&mut *tx).await?;
    scoop.launch(Root).in_transaction(&mut tx).await?;
    let held_up = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'scoop.run'::regclass";
    eventually("the claim is held up", async || db.number(held_up).await > 0).await;

    let _ = tokio::time::timeout(Duration::from_millis(1), scoop.shutdown()).await;
    tx.commit().await?;
    gate.open(10);
    scoop.shutdown().await?;
    assert_eq!(gate.arrived(), 0, "a step was begun");
    Ok(())
}
