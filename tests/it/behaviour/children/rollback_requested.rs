//! Children with a requested rollback, as a failure handler gets them.

use scoop::ChildOutcome;

use super::*;
use crate::support::{Database, Notes};

struct RootHandler {
    notes: Notes,
}

#[saga(name = "root-handler")]
#[subscribes(Root)]
impl RootHandler {
    #[step(name = "0", on_child_failure = look)]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        scope.launch(Child).await?;
        Ok(())
    }

    async fn look(&self, scope: &mut Scope<'_>, _: &Root, why: &Failure) -> Result<()> {
        for child in scope.children().await? {
            let ChildOutcome::RollbackFailed { cause, failure } = &child.outcome else {
                panic!("{child:?}");
            };
            self.notes.add(format!("{}: {} after {}", child.handler, failure.message, cause.kind));
        }
        Err(Error::failure(why.clone()))
    }

    #[step(name = "1")]
    async fn one(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
        Err(SIMULATED.into())
    }
}

#[derive(Default)]
struct ChildHandler;

#[saga(name = "child-handler")]
#[subscribes(Child)]
impl ChildHandler {
    #[step(name = "0", rollback = undo)]
    async fn zero(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
        Err(IllegalStateException("it cannot be undone").into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_during_a_rollback_gets_the_children_that_could_not_be_undone() -> Result<()> {
    let db = Database::new().await;
    let notes = Notes::default();
    let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>();
    let scoop = scoop.provide(RootHandler { notes: notes.clone() }).start().await?;
    assert!(matches!(scoop.launch(Root).await?.ends().await?, Outcome::RollbackFailed(_)));
    assert_eq!(notes.all(), ["child-handler: it cannot be undone after ParentSaidSoException"]);
    Ok(())
}
