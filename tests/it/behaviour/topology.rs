//! Registered handlers, and those that do not come back.

use std::time::SystemTime;

use scoop::tree::{RunState, Tree};

use super::*;
use crate::support::Database;

handler! {
    RootHandler: "root-handler" on Root;
    step "0" zero => launches(Child);
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero => done();
}

/// The sagas of this test that are listed.
async fn listed(scoop: &Scoop) -> Result<Vec<String>> {
    let listed = scoop.operate().handlers().list().await?;
    assert!(listed.iter().all(|listed| listed.since > SystemTime::UNIX_EPOCH));
    Ok(listed.iter().map(|listed| format!("{} on {}", listed.handler, listed.topic)).collect())
}

/// A root that waits for a child without a running handler.
async fn waiting(db: &Database) -> Result<(Scoop, scoop::Handle)> {
    db.start((ChildHandler,)).await?.shutdown().await?;
    let scoop = db.start((RootHandler,)).await?;
    let root = scoop.launch(Root).await?;
    root.comes_to(|tree: &Tree| tree.roots().iter().any(|run| run.state == RunState::Waiting)).await?;
    Ok((scoop, root))
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_handler_gets_no_more_messages_but_keeps_its_waiting_runs() -> Result<()> {
    let db = Database::new().await;
    let (scoop, root) = waiting(&db).await?;
    assert_eq!(listed(&scoop).await?, ["child-handler on child-topic", "root-handler on root-topic"]);

    let retired = scoop.operate().handlers().retire("child-topic", "child-handler").await?;
    assert_eq!((retired.was_registered, retired.pending, retired.dropped), (true, 1, 0));
    let retired = scoop.operate().handlers().retire("child-topic", "child-handler").await?;
    assert_eq!((retired.was_registered, retired.pending, retired.dropped), (false, 1, 0));
    assert_eq!(listed(&scoop).await?, ["root-handler on root-topic"]);
    assert_eq!(scoop.launch(Child).await?.ends().await?, Outcome::NoHandlers);

    // The handler can still come back.
    let back = Scoop::builder().postgres(db.another_pool(6).await).only::<ChildHandler>().start().await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(listed(&scoop).await?.len(), 2);
    back.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_runs_of_a_retired_handler_can_be_dropped() -> Result<()> {
    let db = Database::new().await;
    let (scoop, root) = waiting(&db).await?;
    let retired = scoop.operate().handlers().retire("child-topic", "child-handler").drop_pending().await?;
    assert_eq!((retired.was_registered, retired.pending, retired.dropped), (true, 0, 1));
    assert_eq!(root.ends().await?, Outcome::Committed);
    db.history().await.expect(
        "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M1 EMITTED root-handler 0
        M0 SUSPENDED root-handler 0
        M0 COMMITTED root-handler 0",
    );
    Ok(())
}

/// A root message without a remaining handler is over, and stays so.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_run_of_a_root_message_is_over() -> Result<()> {
    let db = Database::new().await;
    db.start((ChildHandler,)).await?.shutdown().await?;
    let client = Scoop::client(db.pool().clone());
    let child = client.launch(Child).await?;
    client.operate().handlers().retire("child-topic", "child-handler").await?;
    assert_eq!(db.unfinished().await, 1);
    let retired = client.operate().handlers().retire("child-topic", "child-handler").drop_pending().await?;
    assert_eq!((retired.was_registered, retired.dropped), (false, 1));
    assert_eq!(child.ends().await?, Outcome::NoHandlers);
    assert_eq!(db.unfinished().await, 0);
    assert_eq!(db.texts("SELECT outcome::text FROM scoop.ended_run").await, ["dropped"]);
    Ok(())
}
