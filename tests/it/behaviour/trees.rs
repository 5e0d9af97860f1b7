//! What the tree of a hierarchy shows.

use scoop::EventKind;

use super::*;
use crate::support::Database;

#[derive(Default)]
struct RootHandler;

#[saga(name = "root-handler")]
#[subscribes(Root)]
impl RootHandler {
    #[step(name = "place", rollback = undo)]
    async fn place(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        scope.launch(Child).await?;
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct ChildHandler;

#[saga(name = "child-handler")]
#[subscribes(Child)]
impl ChildHandler {
    #[step(name = "reserve", rollback = undo)]
    async fn reserve(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
        Err(SIMULATED.into())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_never_completed_is_not_shown_as_rolled_back() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
    let root = scoop.launch(Root).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    let tree = root.tree().await?;
    let ends = tree.runs().into_iter().flat_map(|run| &run.events);
    let ends = ends.filter(|event| event.kind == EventKind::RolledBack).map(|event| event.step.as_deref());
    assert_eq!(ends.collect::<Vec<_>>(), [Some("Rollback of place[0,]"), None]);
    assert!(!tree.to_string().contains("Rollback of reserve"), "{tree}");
    Ok(())
}
