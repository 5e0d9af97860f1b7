//! Cancellation of a hierarchy (scenario CA).

use super::*;
use crate::support::{Database, Gate, calls_of, compensated, invoked};

#[derive(Default)]
struct RootHandler;

#[saga(name = "root-handler")]
#[subscribes(Root)]
impl RootHandler {
    #[step(name = "0", rollback = undo_zero)]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        invoked(scope);
        scope.launch(Child).await?;
        Ok(())
    }

    async fn undo_zero(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        compensated(scope);
        Ok(())
    }
}

struct ChildHandler {
    gate: Gate,
}

#[saga(name = "child-handler")]
#[subscribes(Child)]
impl ChildHandler {
    #[step(name = "0")]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
        invoked(scope);
        self.gate.pass().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ca_01_cancel_the_root_scope_while_a_child_runs() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>();
    let scoop = scoop.provide(ChildHandler { gate: gate.clone() }).start().await?;
    let root = scoop.launch(Root).await?;
    gate.arrivals(1).await;
    let answer = scoop.cancel(root.id(), "feelz").source("master-system").await?;
    assert_eq!(answer, CancelAnswer::Accepted);
    gate.open(1);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

    db.history().await.expect(
        r#"M0 EMITTED · ·
        M0 SEEN root-handler ·
        M1 EMITTED root-handler 0
        M0 SUSPENDED root-handler 0
        M1 SEEN child-handler ·
        M0 CANCELLATION_REQUESTED · · L=[R] exc=‡CR(feelz)@"master-system"
        M1 ROLLING_BACK child-handler 0 exc=‡GU@child-handler[=row 6]
        M1 ROLLED_BACK child-handler RB(0[0,])
        M0 ROLLING_BACK root-handler 0 exc=‡GU@root-handler[=row 6]
        M1 ROLLBACK_EMITTED root-handler RBC(0[0,])
        M0 SUSPENDED root-handler RBC(0[0,])
        M0 SUSPENDED root-handler RB(0[0,])
        M0 ROLLED_BACK root-handler RB(0[0,])"#,
    );
    calls_of(&root).expect(
        "invoke root-handler/0
        invoke child-handler/0
        rollback root-handler/0",
    );
    Ok(())
}
