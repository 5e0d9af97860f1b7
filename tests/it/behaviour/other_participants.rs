//! Another participant has executed a handler of ours: its run ends with what is recorded.

use super::*;
use crate::support::{Database, calls_of};

handler! {
    RootHandler: "root-handler" on Root;
    step "0" zero [on_child_failure = handle] => launches(Child);
    on_child_failure handle => accepts();
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero => done();
}

/// Inserts the events of a run of this handler, in this order.
async fn record(db: &Database, handler: &str, kinds: &[&str]) {
    for kind in kinds {
        let exception = if *kind == "ROLLING_BACK" {
            r#"'{"type": "Sold", "message": "no chairs", "source": "elsewhere", "stackTrace": [], "causes": []}'"#
        } else {
            "NULL"
        };
        db.execute(&format!(
            "INSERT INTO scoop.message_event
                 (message_id, type, coroutine_name, coroutine_identifier, cooperation_lineage, step, exception)
             SELECT r.message_id, '{kind}', r.handler, 'elsewhere', r.lineage[:cardinality(r.lineage) - 1] || r.message_id,
                    '0', {exception}
             FROM scoop.run r WHERE r.handler = '{handler}'"
        ))
        .await;
    }
}

/// The outcome of a root whose child was executed elsewhere, with these events. Our code of the child is not called.
async fn executed_elsewhere(kinds: &[&str]) -> Result<scoop::Handle> {
    let db = Database::new().await;
    db.start((ChildHandler,)).await?.shutdown().await?;
    let scoop = db.start((RootHandler,)).await?;
    let root = scoop.launch(Root).await?;
    root.comes_to(|tree| tree.roots()[0].state == RunState::Waiting).await?;
    record(&db, "child-handler", kinds).await;
    let child = db.start((ChildHandler,)).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert!(scoop.stuck_runs().await?.is_empty());
    child.shutdown().await?;
    scoop.shutdown().await?;
    Ok(root)
}

#[tokio::test(flavor = "multi_thread")]
async fn parent_goes_on_after_a_child_that_committed_elsewhere() -> Result<()> {
    let root = executed_elsewhere(&["SEEN", "COMMITTED"]).await?;
    calls_of(&root).expect("invoke root-handler/0");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parent_handles_the_failure_of_a_child_that_was_rolled_back_elsewhere() -> Result<()> {
    let root = executed_elsewhere(&["SEEN", "ROLLING_BACK", "ROLLED_BACK"]).await?;
    calls_of(&root).expect(
        "invoke root-handler/0
         hcf root-handler/0",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn root_that_committed_elsewhere_is_gone() -> Result<()> {
    let db = Database::new().await;
    db.start((ChildHandler,)).await?.shutdown().await?;
    let root = db.client().launch(Child).await?;
    record(&db, "child-handler", &["SEEN", "COMMITTED"]).await;
    let scoop = db.start((ChildHandler,)).await?;
    assert_eq!(scoop.find(root.id()).await?.ends().await?, Outcome::Committed);
    crate::support::eventually("its row is gone", async || {
        db.number("SELECT count(*) FROM scoop.run WHERE handler = 'child-handler'").await == 0
    })
    .await;
    assert_eq!(calls_of(&root).count(), 0);
    scoop.shutdown().await?;
    Ok(())
}
