//! Cancellation of a hierarchy (scenario CA).

use super::*;
use crate::support::Gate;

handler! {
    RootHandler: "root-handler" on Root;
    step "0" zero [rollback = undo_zero] => launches(Child);
    rollback undo_zero => done();
}

handler! {
    ChildHandler(gate): "child-handler" on Child;
    step "0" zero => at_gate();
}

#[tokio::test(flavor = "multi_thread")]
async fn ca_01_cancel_the_root_scope_while_a_child_runs() -> Result<()> {
    let gate = Gate::default();
    let run = Run::launch((RootHandler, ChildHandler { gate: gate.clone() }), Root).await?;
    gate.arrivals(1).await;
    let answer = run.scoop.cancel(run.root.id(), "feelz").source("master-system").await?;
    assert_eq!(answer, CancelAnswer::Accepted);
    gate.open(1);
    assert!(matches!(run.root.ends().await?, Outcome::RolledBack(_)));

    run.history().await.expect(
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
    run.calls().expect(
        "invoke root-handler/0
        invoke child-handler/0
        rollback root-handler/0",
    );
    Ok(())
}
