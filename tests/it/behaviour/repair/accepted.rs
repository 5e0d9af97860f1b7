//! Repairs of failures that the parent has accepted.

use super::*;

handler! {
    /// Accepts the failures of its children.
    Accepting: "root-handler" on Root;
    step "0" zero [on_child_failure = accept] => launches(Child);

    async fn accept(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn child_with_an_accepted_failure_can_be_repaired() -> Result<()> {
    let db = Database::new().await;
    let faults = Faults::of(&["child 1 goes on", "child 0"]);
    let child = ChildHandler { faults: faults.clone() };
    let scoop = db.scoop().only::<Accepting>().only::<ChildHandler>().provide(child).start().await?;
    let root = scoop.launch(Root).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);

    let [failed] = &*scoop.failed_rollbacks().await? else { panic!("one failed") };
    faults.mend("child 0");
    assert_eq!(scoop.retry(failed.lineage.id()).await?, RepairAnswer::Accepted);
    let undone =
        |tree: &scoop::tree::Tree| matches!(tree.roots()[0].children[0].state, RunState::RolledBack(_));
    root.comes_to(undone).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(db.unfinished().await, 0);
    Ok(())
}
