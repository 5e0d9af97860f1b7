//! A wait ends where only an operator makes the runs of the message go on, after each failure.

use std::pin::pin;

use scoop::Status;
use scoop::operate::OperateExt as _;

use super::*;

/// The failure of a compensation with one of these faults.
fn check(faults: &Faults) -> Result<()> {
    if faults.has("another way") {
        return Err(IllegalStateException("it is broken in another way").into());
    }
    faults.check("one way")
}

handler! {
    /// Fails, and stops at the gate in its compensation.
    Held { faults: Faults, gate: Gate }: "root-handler" on Root;
    step "0" zero [rollback = undo] => done().silently();
    step "1" one => fails(SIMULATED).silently();

    async fn undo(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        self.gate.pass().await;
        check(&self.faults)
    }
}

handler! {
    /// Fails after its child.
    Above: "root-handler" on Root;
    step "0" zero => launches(Child).silently();
    step "1" one => fails(SIMULATED).silently();
}

handler! {
    /// Stops at the gate in its compensation.
    HeldBelow { faults: Faults, gate: Gate }: "child-handler" on Child;
    step "0" zero [rollback = undo] => done().silently();

    async fn undo(&self, _: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
        self.gate.pass().await;
        check(&self.faults)
    }
}

handler! {
    /// Another handler of the message. It takes until its gate is open.
    Slow(gate): "slow-handler" on Root;
    step "0" zero => at_gate().silently();
}

/// Retries the compensation of this handler. Returns what a wait returns that is in flight meanwhile.
async fn outcome_of_retry(broken: &Broken, handler: &str, gate: &Gate) -> Result<Outcome> {
    assert_eq!(broken.retry(handler).await?, RepairAnswer::Accepted);
    let mut waiting = pin!(broken.root.ends());
    tokio::select! {
        biased;
        outcome = &mut waiting => panic!("the repair is in progress: {outcome:?}"),
        () = gate.arrivals(1) => {}
    }
    assert_eq!(broken.root.status().await?, Status::Unfinished);
    let root = broken.scoop.operate().runs().list().handler("root-handler").await?.runs.remove(0);
    let repairs = broken.scoop.operate().failures().interventions(broken.root.id()).await?;
    let latest = repairs.iter().map(|repair| repair.at).max().expect("it is in repair");
    assert!(root.phase != RunPhase::Waiting || root.since >= latest, "since the repair: {root:?}");
    gate.open(1);
    Ok(waiting.await?)
}

/// The wait is that of the process that executes the run, and of another one. Returns the outcome after the second failure.
async fn ends_after_each_failure(
    handler: &str,
    configure: impl Fn(scoop::Builder, &Faults, &Gate) -> scoop::Builder,
) -> Result<Outcome> {
    let gate = Gate::default();
    gate.open(1);
    let broken = Broken::by(&["one way"], |builder, faults| configure(builder, faults, &gate)).await?;
    gate.arrivals(1).await;
    let elsewhere = broken.db.client().find(broken.root.id()).await?;
    assert!(matches!(elsewhere.ends().await?, Outcome::RollbackFailed(_)));

    broken.faults.add("another way");
    let again = outcome_of_retry(&broken, handler, &gate).await?;
    assert!(matches!(again, Outcome::RollbackFailed(_)), "{again:?}");
    assert_eq!(broken.root.status().await?, Status::Ended(again.clone()));
    for handle in [&broken.root, &elsewhere] {
        assert_eq!(handle.ends().await?, again);
    }

    broken.faults.mend("another way");
    broken.faults.mend("one way");
    let repaired = outcome_of_retry(&broken, handler, &gate).await?;
    assert!(matches!(repaired, Outcome::RolledBack(_)), "{repaired:?}");
    assert_eq!(elsewhere.ends().await?, repaired);
    broken.is_undone().await?;
    Ok(again)
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_a_run_ends_after_each_failure_with_the_latest() -> Result<()> {
    let again = ends_after_each_failure("root-handler", |builder, faults, gate| {
        builder.only::<Held>().provide(Held { faults: faults.clone(), gate: gate.clone() })
    });
    let Outcome::RollbackFailed(failed) = again.await? else { panic!("it failed again") };
    assert_eq!(failed.failure.message, "it is broken in another way");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_a_run_above_ends_after_each_failure_below_with_the_latest() -> Result<()> {
    let again = ends_after_each_failure("child-handler", |builder, faults, gate| {
        let below = HeldBelow { faults: faults.clone(), gate: gate.clone() };
        builder.only::<Above>().only::<HeldBelow>().provide(below)
    });
    let Outcome::RollbackFailed(failed) = again.await? else { panic!("it failed again") };
    assert_eq!(failed.failure.failed_compensation().message, "it is broken in another way");
    Ok(())
}

/// Two children fail, each in its own way. The run above fails because of both. After the repair of one of them, it fails again because
/// of the other one.
#[tokio::test(flavor = "multi_thread")]
async fn failure_above_a_repaired_run_is_about_the_other_failed_run() -> Result<()> {
    let (child, other) = ("child-handler", "other-child-handler");
    for (repaired, fault, next, message) in [
        (child, "another way", other, "it is broken"),
        (other, "other child 0", child, "it is broken in another way"),
    ] {
        let gate = Gate::default();
        gate.open(2);
        let broken = Broken::by(&["another way", "other child 0"], |builder, faults| {
            let below = HeldBelow { faults: faults.clone(), gate: gate.clone() };
            let other = OtherChildHandler { faults: faults.clone() };
            let builder = builder.only::<Above>().only::<HeldBelow>().provide(below);
            builder.only::<OtherChildHandler>().provide(other)
        })
        .await?;
        let before = broken.failed("root-handler").await?;
        assert_eq!(before.failure.causes.len(), 3, "of each its failure, and their reason: {before:?}");

        let run = broken.failed(repaired).await?.lineage;
        broken.faults.mend(fault);
        assert_eq!(broken.retry(repaired).await?, RepairAnswer::Accepted);
        let is_undone = |tree: &scoop::tree::Tree| {
            let mut runs = tree.runs().into_iter();
            runs.any(|it| it.lineage == run && matches!(it.state, RunState::RolledBack(_)))
        };
        broken.root.comes_to(is_undone).await?;
        broken.root.comes_to(rests).await?;
        let (above, below) = (broken.failed("root-handler").await?, broken.failed(next).await?);
        assert_eq!(&*below.failure.message, message, "{below:?}");
        assert_eq!(above.failure.failed_compensation(), &below.failure, "{above:?}");
        assert!(above.at > before.at && above.step == before.step, "{above:?}");
        let explained = broken.scoop.operate().runs().explain(above.id()).await?.runs.remove(0);
        let WaitReason::Operator { why, .. } = &explained.reason else { panic!("{explained}") };
        assert!(why.ends_with(message), "{why}");
        let Outcome::RollbackFailed(failed) = broken.root.ends().await? else { panic!("one is undecided") };
        assert_eq!(failed.failure.failed_compensation().message, message);

        assert_eq!(broken.scoop.operate().failures().resolve(below.id(), "").await?, RepairAnswer::Accepted);
        broken.is_undone().await?;
    }
    Ok(())
}

/// No further rollback fails. The end of the repaired child leaves only the other one.
#[tokio::test(flavor = "multi_thread")]
async fn repair_of_one_of_two_failures_ends_the_wait_for_both() -> Result<()> {
    let broken = Broken::by(&["child 0", "other child 0"], two_children).await?;
    for (handler, fault) in [("child-handler", "child 0"), ("other-child-handler", "other child 0")] {
        let outcome = broken.root.ends().await?;
        assert!(matches!(outcome, Outcome::RollbackFailed(_)), "before that of {handler}: {outcome:?}");
        broken.faults.mend(fault);
        assert_eq!(broken.retry(handler).await?, RepairAnswer::Accepted);
    }
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn repair_of_one_of_two_failures_ends_the_wait_when_it_is_over() -> Result<()> {
    let gate = Gate::default();
    gate.open(1);
    let broken = Broken::by(&["one way", "other child 0"], |builder, faults| {
        let below = HeldBelow { faults: faults.clone(), gate: gate.clone() };
        let other = OtherChildHandler { faults: faults.clone() };
        let builder = builder.only::<Above>().only::<HeldBelow>().provide(below);
        builder.only::<OtherChildHandler>().provide(other)
    })
    .await?;
    gate.arrivals(1).await;
    assert_eq!(broken.retry("child-handler").await?, RepairAnswer::Accepted);
    gate.arrivals(1).await;
    assert_eq!(broken.root.status().await?, Status::Unfinished, "a repair is in progress");

    let other = broken.failed("other-child-handler").await?.lineage;
    broken.faults.mend("other child 0");
    assert_eq!(broken.retry("other-child-handler").await?, RepairAnswer::Accepted);
    let other_is_undone = |tree: &scoop::tree::Tree| {
        let mut runs = tree.runs().into_iter();
        runs.any(|run| run.lineage == other && matches!(run.state, RunState::RolledBack(_)))
    };
    broken.root.comes_to(other_is_undone).await?;
    assert_eq!(broken.root.status().await?, Status::Unfinished, "the last repair is in progress");
    broken.faults.mend("one way");
    gate.open(1);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_another_handler_goes_on_after_a_failure() -> Result<()> {
    let (db, faults, gate) = (Database::new().await, Faults::of(&["root 1"]), Gate::default());
    let builder = alone(db.scoop(), &faults).only::<Slow>().provide(Slow { gate: gate.clone() });
    let scoop = builder.start().await?;
    let root = scoop.launch(Root).await?;
    gate.arrivals(1).await;
    let failed = |tree: &scoop::tree::Tree| {
        tree.roots().iter().any(|run| matches!(run.state, RunState::RollbackFailed(_)))
    };
    root.comes_to(failed).await?;
    let broken = Broken { db, faults, scoop, root };
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    let failed_again = |tree: &scoop::tree::Tree| {
        tree.roots().iter().any(|run| matches!(run.state, RunState::RollbackFailed(_)))
    };
    broken.root.comes_to(failed_again).await?;
    let mut waiting = pin!(broken.root.ends());
    tokio::select! {
        biased;
        outcome = &mut waiting => panic!("a run goes on: {outcome:?}"),
        status = broken.root.status() => assert_eq!(status?, Status::Unfinished),
    }
    assert_eq!(broken.scoop.rollback(broken.root.id(), "again").await?, RollbackAnswer::StillRunning);
    gate.open(1);
    assert!(matches!(waiting.await?, Outcome::RollbackFailed(_)));
    assert_eq!(broken.scoop.rollback(broken.root.id(), "again").await?, RollbackAnswer::FailedBefore);
    broken.faults.mend("root 1");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_requested_while_a_failed_one_rests_is_refused_for_the_failure() -> Result<()> {
    let broken = Broken::by(&["child 0"], two_levels).await?;
    let child = broken.id_of("child-handler").await?;
    assert_eq!(broken.retry("child-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    for id in [broken.root.id().uuid(), child] {
        let request = || broken.scoop.rollback(id, "again");
        assert_eq!(request().dry_run().await?, RollbackAnswer::FailedBefore);
        assert_eq!(request().await?, RollbackAnswer::FailedBefore);
    }
    broken.faults.mend("child 0");
    assert_eq!(broken.retry("child-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}
