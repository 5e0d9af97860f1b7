//! Rollbacks that failed because of a deadline.

use std::time::Duration;

use super::*;
use scoop::operate::OperateExt as _;

handler! {
    /// Its first compensation takes until the deadline, the first time.
    Late: "root-handler" on Root;
    step "0" zero [rollback = undo] => done().silently();
    step "1" one [rollback = undo_late] => done().silently();
    step "2" two => fails(SIMULATED).silently();
    rollback undo => done();

    async fn undo_late(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        if compensated(scope) == 0 {
            scope.stop_signal().raised().await;
        }
        Ok(())
    }
}

handler! {
    /// Fails once its gate is open.
    Waiting(gate): "waiting-handler" on Root;
    step "0" zero [rollback = undo] => launches(Child).silently();
    step "1" one => at_gate().then(fails(SIMULATED)).silently();
    rollback undo => done();
}

/// No process could undo the child by the deadline. The retry still undoes it.
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_child_is_undone_when_the_rollback_is_retried() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = db.start((Waiting { gate: gate.clone() },)).await?;
    let faults = Faults::default();
    let below = async || {
        let child = ChildHandler { faults: faults.clone() };
        db.scoop().only::<ChildHandler>().provide(child).start().await
    };
    let first = below().await?;
    let root = scoop.launch(Root).rollback_deadline(Duration::from_secs(2)).await?;
    gate.arrivals(1).await;
    first.shutdown().await?;
    gate.open(1);
    let outcome = root.ends().await?;
    assert!(matches!(outcome, Outcome::RollbackFailed(_)), "{outcome:?}");
    let _second = below().await?;
    let broken = Broken { root, scoop, db, faults };
    assert_eq!(broken.retry("waiting-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).expect(
        "invoke child-handler/0
        invoke child-handler/1
        rollback child-handler/0
        rollback waiting-handler/0",
    );
    Ok(())
}

handler! {
    /// Fails because of its child, which has a deadline.
    Top: "top-handler" on Root;

    #[step(name = "0")]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        scope.launch(Child).rollback_deadline(Duration::from_secs(2)).await?;
        Ok(())
    }
}

handler! {
    /// Has its child undone, until its deadline.
    Above: "above-handler" on Child;
    step "0" zero => launches(Grandchild).silently();
    step "1" one => fails(SIMULATED).silently();
}

handler! {
    /// Its compensation fails once its gate is open.
    Below(gate): "below-handler" on Grandchild;
    step "0" zero [rollback = undo] => done().silently();
    rollback undo => at_gate().then(fails(SIMULATED)).silently();
}

/// The deadline, and not the child, is why the run above failed. So that run rests during the repair of the child, and after it.
#[tokio::test(flavor = "multi_thread")]
async fn run_that_gave_up_rests_during_and_after_the_repair_of_its_child() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let scoop = db.start((Top, Above, Below { gate: gate.clone() })).await?;
    let root = scoop.launch(Root).await?;
    gate.arrivals(1).await;
    let above = scoop.operate().runs().list().handler("above-handler").await?.runs.remove(0).run.uuid();
    eventually("its deadline has passed", async || {
        scoop.operate().runs().explain(above).await.expect("the database answers").runs[0].giving_up
    })
    .await;
    let broken = Broken { root, scoop, db, faults: Faults::default() };
    let scoop = &broken.scoop;
    for run in scoop.operate().runs().list().await?.runs {
        let (run, offered) = broken.explained(run.run.uuid()).await?;
        assert!(
            !offered.iter().any(|request| RunRequest::REPAIRS.contains(request)),
            "no rollback has failed: {run}"
        );
    }
    gate.open(1);
    assert!(matches!(broken.root.ends().await?, Outcome::RollbackFailed(_)));
    let (top, below) = (broken.id_of("top-handler").await?, broken.id_of("below-handler").await?);
    // The runs that the explanation names in place of one without an offered decision.
    let named = async |run: uuid::Uuid| {
        let (run, offered) = broken.explained(run).await?;
        assert_eq!(offered, [], "{run}");
        assert_eq!(run.kind(), run.run.waits_for, "{run}");
        let WaitReason::Operator { failed_below, has_more_below: false, .. } = &run.reason else {
            panic!("{run:?}")
        };
        Ok::<_, Error>(failed_below.iter().map(|below| below.run.uuid()).collect::<Vec<_>>())
    };

    for run in [top, above] {
        assert_eq!(named(run).await?, [below]);
    }
    assert_eq!(broken.explained(below).await?.1, RunRequest::REPAIRS);

    assert_eq!(broken.retry("below-handler").await?, RepairAnswer::Accepted);
    gate.arrivals(1).await;
    assert_eq!(broken.answers(above).await?, [RepairAnswer::StillRunning; 3], "its child is in repair");
    assert_eq!(named(top).await?, [above]);
    assert_eq!(broken.listed().await?.len(), 2, "{:?}", broken.listed().await?);

    gate.open(1);
    eventually("it has failed again", async || {
        broken.listed().await.expect("the database answers").len() == 3
    })
    .await;
    for run in [top, above] {
        assert_eq!(named(run).await?, [below]);
    }
    assert_eq!(broken.explained(below).await?.1, RunRequest::REPAIRS);

    assert_eq!(scoop.operate().failures().resolve(below, "by hand").await?, RepairAnswer::Accepted);
    assert_eq!(named(top).await?, [above]);
    let (run, offered) = broken.explained(above).await?;
    assert_eq!(offered, RunRequest::REPAIRS);
    assert!(run.to_string().contains(&format!("`retry`, `skip` or `resolve` the run {above}.")), "{run}");
    assert_eq!(scoop.operate().failures().resolve(above, "by hand").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_took_too_long_goes_on_without_the_deadline() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Late,)).await?;
    let launch = scoop.launch(Root).rollback_deadline(Duration::from_secs(2));
    let broken = Broken { root: launch.await?, scoop, db, faults: Faults::default() };
    assert!(matches!(broken.root.ends().await?, Outcome::RollbackFailed(_)));
    assert_eq!(broken.failed("root-handler").await?.step, "Rollback of 1[0,]");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).expect(
        "rollback root-handler/1
        rollback root-handler/1
        rollback root-handler/0",
    );
    Ok(())
}
