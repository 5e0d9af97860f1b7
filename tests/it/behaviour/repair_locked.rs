//! Repairs that fail again while an operator decides about another run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use scoop::{RepairAnswer, RunState};

use super::*;
use crate::support::{Database, Gate, eventually};

handler! {
    /// Fails after its child.
    Above: "root-handler" on Root;
    step "0" zero => launches(Child).silently();
    step "1" one => fails(SIMULATED).silently();
}

handler! {
    /// Its compensation fails, once its gate is open.
    Below(gate): "child-handler" on Child;
    step "0" zero [rollback = undo] => done().silently();

    async fn undo(&self, _: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
        self.gate.pass().await;
        Err(IllegalStateException("it is broken").into())
    }
}

handler! {
    /// Another handler of that message. Its compensation fails as long as it is broken.
    Beside { is_broken: Arc<AtomicBool> }: "other-child-handler" on Child;
    step "0" zero [rollback = undo] => done().silently();

    async fn undo(&self, _: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
        match self.is_broken.load(Ordering::SeqCst) {
            true => Err(IllegalStateException("it is broken").into()),
            false => Ok(()),
        }
    }
}

/// The sessions that wait for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// A decision about a run beside the child locks the run above both.
#[tokio::test(flavor = "multi_thread")]
async fn failure_of_a_repair_waits_for_the_lock_of_the_run_above_and_is_recorded_once() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    gate.open(1);
    let scoop = db.start((Above, Below { gate: gate.clone() })).await?;
    let root = scoop.launch(Root).await?;
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
    gate.arrivals(1).await;
    let listed = scoop.failed_compensations().await?;
    let child = listed.iter().find(|failed| failed.handler == "child-handler").expect("it is listed").id();
    assert_eq!(scoop.retry(child).await?, RepairAnswer::Accepted);
    gate.arrivals(1).await;

    let mut decision = db.pool().begin().await?;
    let lock = "SELECT FROM scoop.run WHERE handler = 'root-handler' FOR NO KEY UPDATE";
    assert_eq!(sqlx::query(lock).execute(&mut *decision).await?.rows_affected(), 1);
    gate.open(1);
    eventually("the failure waits for the lock", async || db.number(WAITING).await == 1).await;
    assert_eq!(db.number("SELECT count(*) FROM scoop.repeated_failure").await, 0);
    decision.commit().await?;
    root.comes_to(|tree| matches!(tree.roots()[0].state, RunState::AwaitingOperator { .. })).await?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.repeated_failure").await, 1);
    assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE awaits_operator").await, 2, "both runs");

    assert_eq!(scoop.resolve(child, "by hand").await?, RepairAnswer::Accepted);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    Ok(())
}

/// The decision has read the child as in repair, and lets the run above wait for no operator. The child fails again before that is
/// committed.
#[tokio::test(flavor = "multi_thread")]
async fn repair_that_fails_again_during_a_decision_beside_it_makes_the_run_above_wait_for_an_operator()
-> Result<()> {
    let (db, gate, is_broken) = (Database::new().await, Gate::default(), Arc::new(AtomicBool::new(true)));
    gate.open(1);
    let handlers = (Above, Below { gate: gate.clone() }, Beside { is_broken: is_broken.clone() });
    let scoop = db.start(handlers).await?;
    let root = scoop.launch(Root).await?;
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
    gate.arrivals(1).await;
    let listed = scoop.failed_compensations().await?;
    let id =
        |handler: &str| listed.iter().find(|failed| failed.handler == handler).expect("it is listed").id();
    let (child, other) = (id("child-handler"), id("other-child-handler"));
    assert_eq!(scoop.retry(child).await?, RepairAnswer::Accepted);
    gate.arrivals(1).await;
    is_broken.store(false, Ordering::SeqCst);

    let interventions = "BEGIN; LOCK TABLE scoop.intervention IN EXCLUSIVE MODE";
    let lock = db.pool().begin_with(interventions).await?;
    let deciding = scoop.clone();
    let decision = tokio::spawn(async move { deciding.retry(other).await });
    eventually("the decision waits to be written", async || db.number(WAITING).await == 1).await;
    gate.open(1);
    eventually("the failure waits for the decision", async || db.number(WAITING).await == 2).await;
    lock.rollback().await?;
    assert_eq!(decision.await??, RepairAnswer::Accepted);
    eventually("the failure is recorded", async || {
        db.number("SELECT count(*) FROM scoop.repeated_failure").await == 1
    })
    .await;
    assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE awaits_operator").await, 2, "both runs");
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));

    assert_eq!(scoop.resolve(child, "by hand").await?, RepairAnswer::Accepted);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    Ok(())
}
