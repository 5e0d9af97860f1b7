//! Runs above a failed one: they wait for its repair, and then go on.

use super::*;
use scoop::operate::OperateExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn ancestors_of_a_repaired_run_resume_where_they_failed() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    let mut listed = broken.listed().await?;
    listed.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        listed,
        [
            ("child-handler".into(), Next::Below),
            ("grandchild-handler".into(), Next::Itself),
            ("root-handler".into(), Next::Below),
        ]
    );
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::FailedBelow);

    broken.faults.mend("grandchild 0");
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).expect(
        "invoke root-handler/0
        invoke root-handler/1
        invoke child-handler/0
        invoke grandchild-handler/0
        invoke child-handler/1
        invoke root-handler/2
        rollback grandchild-handler/0
        rollback grandchild-handler/0
        rollback child-handler/0
        rollback root-handler/1
        rollback root-handler/0",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn resolved_run_settles_the_failures_below() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    let run = broken.id_of("child-handler").await?;
    assert_eq!(broken.scoop.operate().failures().resolve(run, "by hand").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).of(&["child-handler", "grandchild-handler"]).expect(
        "invoke child-handler/0
        invoke grandchild-handler/0
        invoke child-handler/1
        rollback grandchild-handler/0",
    );
    calls_of(&broken.root).of(&["root-handler"]).expect(
        "invoke root-handler/0
        invoke root-handler/1
        invoke root-handler/2
        rollback root-handler/1
        rollback root-handler/0",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn skipped_run_leaves_its_failed_children_unchanged() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    let run = broken.id_of("child-handler").await?;
    assert_eq!(
        broken.scoop.operate().failures().skip(run, "never mind the grandchild").await?,
        RepairAnswer::Accepted
    );
    assert!(matches!(broken.root.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(broken.listed().await?, [("grandchild-handler".into(), Next::Itself)]);
    calls_of(&broken.root).of(&["child-handler"]).expect(
        "invoke child-handler/0
        invoke child-handler/1
        rollback child-handler/0",
    );

    // The grandchild can still be repaired; no run waits for it any more.
    broken.faults.mend("grandchild 0");
    let grandchild = broken.failed("grandchild-handler").await?.lineage;
    assert_eq!(broken.scoop.operate().failures().retry(grandchild.id()).await?, RepairAnswer::Accepted);
    let undone = |tree: &scoop::tree::Tree| {
        let mut runs = tree.runs().into_iter();
        runs.any(|run| run.lineage == grandchild && matches!(run.state, RunState::RolledBack(_)))
    };
    broken.root.comes_to(undone).await?;
    broken.is_undone().await
}

/// The child fails on its own while the parent goes forward (W-17). The parent begins to roll back, and fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_was_going_forward_is_undone_from_its_beginning() -> Result<()> {
    let broken = Broken::by(&["child 1 goes on", "child 0"], two_levels).await?;
    calls_of(&broken.root).of(&["root-handler"]).expect(
        "invoke root-handler/0
        invoke root-handler/1",
    );
    broken.faults.mend("child 0");
    assert_eq!(broken.retry("child-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).of(&["root-handler"]).expect(
        "invoke root-handler/0
        invoke root-handler/1
        rollback root-handler/1
        rollback root-handler/0",
    );
    broken.db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M0 SUSPENDED root-handler 0 next=1
        M0 SUSPENDED root-handler 1 next=2
        M0 ROLLING_BACK root-handler 1 cfhi=0
        M0 ROLLBACK_FAILED root-handler RBC(1[0,]) cfhi=0
        M0 SUSPENDED root-handler RBC(1[0,])
        M0 SUSPENDED root-handler RB(1[0,])
        M0 SUSPENDED root-handler RBC(0[0,])
        M0 SUSPENDED root-handler RB(0[0,])
        M0 ROLLED_BACK root-handler RB(0[0,])",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ancestor_of_two_failed_runs_fails_again_because_of_the_other_one() -> Result<()> {
    let broken = Broken::by(&["child 0", "other child 0"], two_children).await?;
    broken.faults.mend("child 0");
    let child = broken.failed("child-handler").await?.lineage;
    assert_eq!(broken.scoop.operate().failures().retry(child.id()).await?, RepairAnswer::Accepted);
    let child_is_undone = |tree: &scoop::tree::Tree| {
        let mut runs = tree.runs().into_iter();
        runs.any(|run| run.lineage == child && matches!(run.state, RunState::RolledBack(_)))
    };
    broken.root.comes_to(child_is_undone).await?;
    broken.root.comes_to(rests).await?;
    assert_eq!(broken.scoop.operate().failures().retry(child.id()).await?, RepairAnswer::NotFailed);
    let root = broken.failed("root-handler").await?;
    let other = broken.id_of("other-child-handler").await?;
    assert_eq!(root.failed_below.iter().map(|run| run.uuid()).collect::<Vec<_>>(), [other]);
    assert_eq!(broken.scoop.operate().failures().retry(root.lineage.id()).await?, RepairAnswer::FailedBelow);

    assert_eq!(broken.scoop.operate().failures().resolve(other, "").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn ancestor_of_a_run_that_failed_again_can_be_resolved() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    let child = broken.id_of("child-handler").await?;
    assert_eq!(broken.scoop.operate().failures().resolve(child, "").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}
