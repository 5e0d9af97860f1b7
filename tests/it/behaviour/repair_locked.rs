//! Repairs that fail again while an operator decides about another run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use scoop::requests::RepairAnswer;

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

/// A decision about a run beside the child locks the run above both. The child fails meanwhile: its wake-up of that run waits.
#[tokio::test(flavor = "multi_thread")]
async fn repair_that_fails_again_during_a_decision_beside_it_wakes_no_run_above_before_both_have_ended()
-> Result<()> {
    let (db, gate, is_broken) = (Database::new().await, Gate::default(), Arc::new(AtomicBool::new(true)));
    gate.open(1);
    let handlers = (Above, Below { gate: gate.clone() }, Beside { is_broken: is_broken.clone() });
    let scoop = db.start(handlers).await?;
    let root = scoop.launch(Root).await?;
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
    gate.arrivals(1).await;
    let listed = scoop.failed_rollbacks().await?;
    let id =
        |handler: &str| listed.iter().find(|failed| failed.handler == handler).expect("it is listed").id();
    let (child, other) = (id("child-handler"), id("other-child-handler"));
    assert_eq!(scoop.retry(child).await?, RepairAnswer::Accepted);
    gate.arrivals(1).await;

    let interventions = "BEGIN; LOCK TABLE scoop.intervention IN EXCLUSIVE MODE";
    let lock = db.pool().begin_with(interventions).await?;
    let deciding = scoop.clone();
    let decision = tokio::spawn(async move { deciding.retry(other).await });
    eventually("the decision waits to be written", async || db.number(WAITING).await == 1).await;
    gate.open(1);
    let failures =
        "SELECT count(*) FROM scoop.message_event WHERE type = 'ROLLBACK_FAILED' AND coroutine_name = ";
    let of = async |handler: &str| db.number(&format!("{failures} '{handler}'")).await;
    eventually("the child has failed again", async || of("child-handler").await == 2).await;
    eventually("its wake-up of the run above waits for the decision", async || db.number(WAITING).await == 2)
        .await;
    assert_eq!(of("root-handler").await, 1);
    lock.rollback().await?;
    assert_eq!(decision.await??, RepairAnswer::Accepted);
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
    assert_eq!(of("other-child-handler").await, 2, "its repair has ended before the run above goes on");
    assert_eq!(of("root-handler").await, 2);

    for run in [child, other] {
        assert_eq!(scoop.resolve(run, "by hand").await?, RepairAnswer::Accepted);
        root.ends().await?;
    }
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    Ok(())
}
