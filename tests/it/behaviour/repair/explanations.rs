//! Explanations and dry runs: on which run an operator decides next.

use super::*;
use scoop::operate::OperateExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn runs_above_one_that_failed_again_fail_again_and_name_it() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    broken.faults.mend("grandchild 0");
    broken.faults.add("grandchild 0 in another way");
    broken.views_agree().await?;
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    broken.views_agree().await?;
    let grandchild = broken.id_of("grandchild-handler").await?;
    for handler in ["child-handler", "root-handler"] {
        let failed = broken.failed(handler).await?;
        assert_eq!(failed.failure.failed_compensation().message, "it is broken in another way", "{handler}");
        assert_eq!(failed.failed_below.iter().map(|run| run.uuid()).collect::<Vec<_>>(), [grandchild]);
        let run = broken.scoop.operate().runs().explain(failed.id()).await?.runs.remove(0);
        assert_eq!((run.run.phase, run.run.waits_for), (RunPhase::RollbackFailed, Some(WaitKind::Operator)));
        assert_eq!(broken.explained(failed.id().uuid()).await?.1, [], "the grandchild comes first");
        let repair = broken.scoop.operate().failures().interventions(broken.root.id()).await?.remove(0);
        assert!(run.run.since > repair.at, "since the second failure: {run:?}");
        let WaitReason::Operator { why, failed_below, has_more_below: false } = &run.reason else {
            panic!("{run:?}")
        };
        assert!(why.contains("it is broken in another way"), "the latest failure: {why}");
        let [below] = &failed_below[..] else { panic!("{run:?}") };
        assert_eq!((below.run.uuid(), &*below.handler), (grandchild, "grandchild-handler"));
        let failure = below.failure.as_ref().map(|failure| &*failure.headline);
        assert_eq!(failure, Some("it is broken in another way"));
        let decide = format!("`retry`, `skip` or `resolve` the run {grandchild} of `grandchild-handler`.");
        assert!(run.to_string().contains(&decide), "{run}");
    }
    let waiting = broken.scoop.operate().runs().list().waiting_for(WaitKind::Operator).await?.runs;
    let all = ["grandchild-handler", "child-handler", "root-handler"];
    assert_eq!(waiting.iter().map(|run| &*run.handler).collect::<Vec<_>>(), all);
    let failures = waiting.iter().map(|run| run.failure.as_ref().map(|failure| &*failure.headline));
    assert_eq!(failures.collect::<Vec<_>>(), [Some("it is broken in another way"); 3]);
    assert_eq!(broken.scoop.operate().runs().list().state(RunPhase::RollbackFailed).await?.runs, waiting);
    assert_eq!(broken.scoop.operate().runs().list().waiting_for(WaitKind::Children).await?.runs, []);
    let counts = broken.scoop.operate().runs().count().await?;
    assert_eq!(counts.unfinished_in(RunPhase::RollbackFailed), all.len());

    broken.faults.mend("grandchild 0 in another way");
    assert_eq!(broken.retry("grandchild-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn run_above_two_failed_ones_is_blocked_by_those_that_no_operator_has_repaired() -> Result<()> {
    let broken = Broken::by(&["child 0", "other child 0"], two_children).await?;
    let blocking = async || -> Result<Vec<uuid::Uuid>> {
        broken.views_agree().await?;
        let root = broken.failed("root-handler").await?;
        Ok(root.failed_below.iter().map(|run| run.uuid()).collect())
    };
    let mut children = [broken.failed("child-handler").await?, broken.failed("other-child-handler").await?];
    children.sort_by_key(|child| (child.at, child.id().uuid()));
    assert_eq!(blocking().await?, children.map(|child| child.id().uuid()), "the oldest failure first");

    let child = broken.failed("child-handler").await?.lineage;
    let other = broken.id_of("other-child-handler").await?;
    broken.faults.mend("child 0");
    assert_eq!(broken.scoop.operate().failures().retry(child.id()).await?, RepairAnswer::Accepted);
    let child_is_undone = |tree: &scoop::tree::Tree| {
        let mut runs = tree.runs().into_iter();
        runs.any(|run| run.lineage == child && matches!(run.state, RunState::RolledBack(_)))
    };
    broken.root.comes_to(child_is_undone).await?;
    broken.root.comes_to(rests).await?;
    assert_eq!(blocking().await?, [other]);
    assert_eq!(broken.scoop.operate().failures().retry(other).await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    assert_eq!(blocking().await?, [other]);

    assert_eq!(broken.scoop.operate().failures().resolve(other, "").await?, RepairAnswer::Accepted);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_of_a_repair_gets_the_answer_of_the_request_and_changes_nothing() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    let scoop = &broken.scoop;
    let state = async || {
        let runs = scoop.operate().runs().list().await?.runs;
        Ok::<_, Error>((format!("{runs:?}"), broken.failed_parts().await?, broken.listed().await?))
    };
    let before = state().await?;
    let [grandchild, root] = [broken.id_of("grandchild-handler").await?, broken.id_of("root-handler").await?];
    for (run, retried) in [(grandchild, RepairAnswer::Accepted), (root, RepairAnswer::FailedBelow)] {
        assert_eq!(broken.answers(run).await?, [retried, RepairAnswer::Accepted, RepairAnswer::Accepted]);
    }
    assert_eq!(broken.explained(grandchild).await?.1, RunRequest::REPAIRS);
    assert_eq!(broken.explained(root).await?.1, [], "the grandchild comes first");
    assert_eq!(state().await?, before);
    assert!(scoop.operate().failures().interventions(broken.root.id()).await?.is_empty());
    assert_eq!(scoop.operate().failures().retry(root).await?, RepairAnswer::FailedBelow);
    broken.faults.mend("grandchild 0");
    assert_eq!(scoop.operate().failures().retry(grandchild).await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    assert_eq!(scoop.operate().failures().retry(grandchild).dry_run().await?, RepairAnswer::NotFailed);
    Ok(())
}
