//! Deadlines (scenario DL).

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::*;
use crate::support::{Database, invoked};

handler! {
    RootHandler: "root-handler" on Root;
    #[step(name = "0", rollback = undo_zero)]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        invoked(scope);
        scope.launch(Child).deadline(Duration::ZERO).source("root handler").await?;
        Ok(())
    }

    rollback undo_zero => done();
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero => never_ends();
}

/// How the protocol writes that there is no deadline.
const NEVER: &str = "9999-12-31T23:59:59.999999Z";

#[tokio::test(flavor = "multi_thread")]
async fn dl_01_a_child_gets_a_deadline_that_has_already_passed() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((RootHandler, ChildHandler)).await?;
    let never = SystemTime::UNIX_EPOCH + Duration::from_micros(253_402_300_799_999_999);
    let root = scoop.launch(Root).deadline(never).source("root system").await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

    let k0 = json!({"HappyPathDeadlineKey": {"deadline": NEVER, "source": "root system", "trace": []}});
    let k1 = json!({"HappyPathDeadlineKey": {"deadline": "…", "source": "root handler", "trace": [k0]}});
    let history = db.history().await;
    history.expect_with(
        &[("K0", k0), ("K1", k1)],
        "M0 EMITTED · · ctx=K0
        M0 SEEN root-handler · ctx=K0
        M1 EMITTED root-handler 0 ctx=K1
        M0 SUSPENDED root-handler 0 ctx=K0
        M1 SEEN child-handler · ctx=K1
        M1 ROLLING_BACK child-handler 0 ctx=K1 exc=‡GU@child-handler[MissedHappyPathDeadline]
        M1 ROLLED_BACK child-handler RB(0[0,]) ctx=K1
        M0 ROLLING_BACK root-handler 0 cfhi=0 ctx=K0 exc=‡CRB(0)@root-handler[=row 6]
        M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) ctx=K0
        M0 SUSPENDED root-handler RBC(0[0,]) ctx=K0
        M0 SUSPENDED root-handler RB(0[0,]) ctx=K0
        M0 ROLLED_BACK root-handler RB(0[0,]) ctx=K0",
    );
    crate::support::calls_of(&root).expect(
        "invoke root-handler/0
        rollback root-handler/0",
    );

    let turned_back = history.only("ROLLING_BACK", "child-handler");
    let missed = &turned_back.exception.as_ref().expect("a failure").causes[0];
    let deadline = &turned_back.context().expect("a context")["HappyPathDeadlineKey"]["deadline"];
    let deadline = deadline.as_str().expect("a text");
    assert_eq!((&*missed.kind, &*missed.source), ("MissedHappyPathDeadline", "root handler"));
    assert_eq!(missed.message, format!("missed the deadline {deadline}, set by root handler"));
    assert!(missed.stack_trace.is_empty() && missed.causes.is_empty(), "{missed:?}");
    Ok(())
}
