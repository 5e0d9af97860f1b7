//! What operators see of failed rollbacks. The audit of the history compares it with the record.

use scoop::RunPhase;

use super::*;

/// The number of listed failures, and of failed runs in the counts.
async fn seen(broken: &Broken) -> Result<[usize; 2]> {
    broken.db.history().await;
    let counts = broken.scoop.operate().runs().count().await?.unfinished;
    let failed = counts.iter().filter(|count| count.phase == RunPhase::RollbackFailed);
    let listed = broken.scoop.failed_rollbacks().await?.len();
    Ok([listed, failed.map(|count| count.count).sum()])
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_is_seen_until_a_retry_a_skip_or_a_resolve_settles_it() -> Result<()> {
    for action in ["retry", "skip", "resolve"] {
        let broken = Broken::by(&["child 0"], two_levels).await?;
        assert_eq!(seen(&broken).await?, [2, 2], "the child and the root");
        let child = broken.id_of("child-handler").await?;
        broken.faults.mend("child 0");
        let answer = match action {
            "retry" => broken.scoop.retry(child).await?,
            "skip" => broken.scoop.skip(child, "").await?,
            _ => broken.scoop.resolve(child, "").await?,
        };
        assert_eq!(answer, RepairAnswer::Accepted);
        broken.is_undone().await?;
        assert_eq!(seen(&broken).await?, [0, 0], "{action}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_is_seen_once_while_it_is_repaired_and_after_it_failed_again() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    assert_eq!(seen(&broken).await?, [1, 1]);
    let run = broken.id_of("root-handler").await?;
    assert_eq!(broken.scoop.resolve(run, "").await?, RepairAnswer::Accepted);
    assert_eq!(seen(&broken).await?, [0, 0]);
    broken.is_undone().await
}

/// The parent goes on in spite of it; only an operator settles it.
#[tokio::test(flavor = "multi_thread")]
async fn failure_below_a_skipped_run_is_seen_until_it_is_resolved() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    assert_eq!(seen(&broken).await?, [3, 3]);
    let child = broken.id_of("child-handler").await?;
    assert_eq!(broken.scoop.skip(child, "").await?, RepairAnswer::Accepted);
    assert!(matches!(broken.root.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(seen(&broken).await?, [1, 1]);
    let grandchild = broken.id_of("grandchild-handler").await?;
    assert_eq!(broken.scoop.resolve(grandchild, "").await?, RepairAnswer::Accepted);
    assert_eq!(seen(&broken).await?, [0, 0]);
    broken.is_undone().await
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_failure_is_seen_with_its_own_time() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    let first = broken.failed("root-handler").await?;
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    let again = broken.failed("root-handler").await?;
    assert!(again.at > first.at, "{again:?}");
    let tree = broken.root.tree().await?;
    let newest = tree.roots()[0].events.iter().rfind(|event| event.kind == EventKind::RollbackFailed);
    assert_eq!(newest.and_then(|event| event.at), Some(again.at), "{tree}");
    Ok(())
}
