//! Children with a requested rollback, as a failure handler gets them.

use scoop::ChildOutcome;

use super::*;
use crate::support::{Database, Notes};

handler! {
    RootHandler { notes: Notes }: "root-handler" on Root;
    step "0" zero [on_child_failure = look] => launches(Child);

    async fn look(&self, scope: &mut Scope<'_>, _: &Root, why: &Failure) -> Result<()> {
        for child in scope.children().await? {
            let ChildOutcome::RollbackFailed { cause, failure } = &child.outcome else {
                panic!("{child:?}");
            };
            self.notes.add(format!("{}: {} after {}", child.handler, failure.message, cause.kind));
        }
        Err(Error::failure(why.clone()))
    }

    step "1" one => fails(SIMULATED);
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero [rollback = undo] => done();
    rollback undo => fails(IllegalStateException("it cannot be undone"));
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_during_a_rollback_gets_the_children_that_could_not_be_undone() -> Result<()> {
    let db = Database::new().await;
    let notes = Notes::default();
    let scoop = db.start((RootHandler { notes: notes.clone() }, ChildHandler)).await?;
    assert!(matches!(scoop.launch(Root).await?.ends().await?, Outcome::RollbackFailed(_)));
    assert_eq!(notes.all(), ["child-handler: it cannot be undone after ParentSaidSoException"]);
    Ok(())
}
