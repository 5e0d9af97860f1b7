//! Decisions while other runs are in progress.

use super::*;
use scoop::operate::OperateExt as _;

handler! {
    /// Another handler of the message of the child. Its compensation takes until its gate is open.
    Slow(gate): "slow-handler" on Child;
    step "0" zero [rollback = undo] => done().silently();
    rollback undo => at_gate().silently();
}

/// The child has failed because of the grandchild. The root waits for its other child.
#[tokio::test(flavor = "multi_thread")]
async fn decision_while_the_run_above_waits_for_another_child_is_accepted() -> Result<()> {
    let (db, gate, faults) = (Database::new().await, Gate::default(), Faults::of(&["grandchild 0"]));
    let builder = three_levels(db.scoop(), &faults).only::<Slow>().provide(Slow { gate: gate.clone() });
    let scoop = builder.start().await?;
    let root = scoop.launch(Root).await?;
    let broken = Broken { db, faults, scoop, root };
    gate.arrivals(1).await;
    eventually("the child has failed", async || {
        broken.listed().await.expect("the database answers").len() == 2
    })
    .await;
    let grandchild = broken.id_of("grandchild-handler").await?;
    assert_eq!(broken.explained(grandchild).await?.1, RunRequest::REPAIRS);
    broken.faults.mend("grandchild 0");
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    eventually("the child is undone", async || {
        broken.listed().await.expect("the database answers").is_empty()
            && broken
                .scoop
                .operate()
                .runs()
                .list()
                .handler("child-handler")
                .state(RunPhase::RolledBack)
                .await
                .is_ok_and(|it| !it.runs.is_empty())
    })
    .await;
    gate.open(1);
    broken.is_undone().await?;
    let tree = broken.root.tree().await?;
    let failures = tree.roots()[0].events.iter().filter(|event| event.kind == EventKind::RollbackFailed);
    assert_eq!(failures.count(), 0, "the root has not failed: {tree}");
    Ok(())
}

handler! {
    /// Accepts the failure of its child, and fails then.
    Accepting { faults: Faults }: "root-handler" on Root;
    step "0" zero [rollback = undo, on_child_failure = accept] => launches(Child).silently();
    step "1" one => fails(SIMULATED).silently();

    async fn undo(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        self.faults.check("root 0")
    }

    async fn accept(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        Ok(())
    }
}

handler! {
    /// Its compensation launches a message.
    Launching { faults: Faults }: "child-handler" on Child;
    step "0" zero [rollback = undo] => done().silently();
    step "1" one => fails(SIMULATED).silently();

    async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
        self.faults.check("child 0")?;
        scope.launch(Grandchild).await?;
        Ok(())
    }
}

handler! {
    /// Takes until its gate is open.
    Launched(gate): "launched-handler" on Grandchild;
    step "0" zero => at_gate().silently();
}

/// The root does not wait for the child, whose failure it has accepted: a decision about it needs not wait, either.
#[tokio::test(flavor = "multi_thread")]
async fn decision_above_an_accepted_run_in_repair_is_accepted() -> Result<()> {
    let gate = Gate::default();
    let broken = Broken::by(&["root 0", "child 0"], |builder, faults| {
        let builder = builder.only::<Accepting>().provide(Accepting { faults: faults.clone() });
        let builder = builder.only::<Launching>().provide(Launching { faults: faults.clone() });
        builder.only::<Launched>().provide(Launched { gate: gate.clone() })
    })
    .await?;
    let root = broken.id_of("root-handler").await?;
    assert_eq!(broken.explained(root).await?.1, RunRequest::REPAIRS);
    broken.faults.mend("child 0");
    let child = broken.id_of("child-handler").await?;
    assert_eq!(broken.scoop.operate().failures().retry(child).await?, RepairAnswer::Accepted);
    gate.arrivals(1).await;
    assert_eq!(broken.answers(child).await?, [RepairAnswer::StillRunning; 3], "its compensation waits");
    broken.faults.mend("root 0");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    assert!(matches!(broken.root.ends().await?, Outcome::RolledBack(_)));
    gate.open(1);
    eventually("the child is undone", async || broken.db.unfinished().await == 0).await;
    broken.is_undone().await
}
