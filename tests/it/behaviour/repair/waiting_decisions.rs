//! Decisions wait for runs that are in progress, and explanations name these.

use super::*;

/// The runs for which decisions about a run wait, with the text of the explanation.
async fn waits(broken: &Broken, run: uuid::Uuid) -> Result<(Vec<uuid::Uuid>, String)> {
    assert_eq!(broken.answers(run).await?, [RepairAnswer::StillRunning; 3]);
    let (run, offered) = broken.explained(run).await?;
    assert_eq!(offered, [], "{run}");
    let WaitReason::RunsInProgress { below, has_more_below: false } = &run.reason else { panic!("{run:?}") };
    assert_eq!((run.kind(), run.run.waits_for), (Some(WaitKind::Operator), Some(WaitKind::Operator)));
    Ok((below.iter().map(|below| below.run.uuid()).collect(), run.to_string()))
}

handler! {
    /// Another handler of the message of the child. Its compensation takes until its gate is open.
    Slow(gate): "slow-handler" on Child;
    step "0" zero [rollback = undo] => done().silently();
    rollback undo => at_gate().silently();
}

/// The child has failed because of the grandchild. The root records that when its other child has ended.
#[tokio::test(flavor = "multi_thread")]
async fn decision_below_an_unrecorded_failure_is_not_offered_until_it_is_recorded() -> Result<()> {
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
    for run in [grandchild, broken.id_of("child-handler").await?] {
        let (below, text) = waits(&broken, run).await?;
        assert!(below.is_empty(), "{below:?}");
        assert!(text.contains("waits until the runs above it have recorded its failure, for "), "{text}");
        let end = "An operator can decide about it when the runs above it have recorded its failure.";
        assert!(text.ends_with(end), "{text}");
    }
    gate.open(1);
    assert!(matches!(broken.root.ends().await?, Outcome::RollbackFailed(_)));
    assert_eq!(broken.explained(grandchild).await?.1, RunRequest::REPAIRS);
    broken.faults.mend("grandchild 0");
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await
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

/// The root does not wait for the child, whose failure it has accepted.
#[tokio::test(flavor = "multi_thread")]
async fn decision_above_an_unfinished_run_is_not_offered_until_that_ends() -> Result<()> {
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
    assert_eq!(broken.retry("child-handler").await?, RepairAnswer::Accepted);
    gate.arrivals(1).await;
    let launched = broken.scoop.runs().handler("launched-handler").await?.runs.remove(0).run.uuid();
    let (below, text) = waits(&broken, root).await?;
    assert_eq!(below, [launched]);
    let waits = format!("waits for the end of the run {launched} of `launched-handler`, for ");
    assert!(text.contains(&waits), "{text}");
    assert!(text.ends_with("An operator can decide about it when these runs have ended."), "{text}");
    gate.open(1);
    eventually("the child is undone", async || broken.db.unfinished().await == 0).await;
    assert_eq!(broken.explained(root).await?.1, RunRequest::REPAIRS);
    broken.faults.mend("root 0");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}
