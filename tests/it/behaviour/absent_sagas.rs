//! Pending runs that have to give up and whose saga no living program has: another program ends them.

use std::time::{Duration, SystemTime};

use scoop::HierarchyId;

use super::*;
use crate::support::{Database, calls_of};

handler! {
    RootHandler: "root-handler" on Root;
    step "0" zero => done();
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero => done();
}

handler! {
    Other: "other" on Grandchild;
    step "0" zero => done();
}

handler! {
    Waiter: "waiter" on Root;
    step "0" zero => launches(Child);
}

/// Launches a message whose deadline is over, and goes on without it.
struct Launcher;

#[saga(name = "launcher")]
#[subscribes(Root)]
impl Launcher {
    #[step(name = "0", on_child_failure = accept)]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        scope.launch(Child).deadline(past()).await?;
        Ok(())
    }

    async fn accept(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        crate::support::handled(scope);
        Ok(())
    }
}

fn past() -> SystemTime {
    SystemTime::now() - Duration::from_secs(60)
}

/// Registers sagas whose program ends then.
async fn absent<S: Saga + Default>(db: &Database) -> Result<()> {
    db.start((S::default(),)).await?.shutdown().await?;
    Ok(())
}

/// Starts a program without the sagas of these tests. It looks for such runs when it starts, and once a minute.
async fn other_program(db: &Database) -> Result<scoop::Scoop> {
    Ok(db.start((Other,)).await?)
}

/// The outcome of a hierarchy that another program ends.
async fn ended_by_another(db: &Database, root: HierarchyId) -> Result<Outcome> {
    let other = other_program(db).await?;
    let outcome = db.client().find(root).await?.ends().await?;
    other.shutdown().await?;
    Ok(outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_root_of_an_absent_saga_ends_at_its_deadline() -> Result<()> {
    let db = Database::new().await;
    absent::<RootHandler>(&db).await?;
    let root = db.client().launch(Root).deadline(past()).source("support").await?;
    let explained = db.client().operate().runs().explain(root.id()).await?.to_string();
    assert!(explained.contains("It has missed its deadline"), "{explained}");
    assert!(matches!(ended_by_another(&db, root.id()).await?, Outcome::RolledBack(_)));
    assert_eq!(calls_of(&root).count(), 0);
    let d = serde_json::json!({"HappyPathDeadlineKey": {"deadline": "…", "source": "support", "trace": []}});
    // As from a program that has the saga.
    db.history().await.expect_with(
        &[("D", d)],
        r#"M0 EMITTED · · ctx=D
        M0 SEEN root-handler · ctx=D
        M0 ROLLING_BACK root-handler 0 ctx=D exc=GU@root-handler[MissedHappyPathDeadline(…)@"support"]
        M0 ROLLED_BACK root-handler RB(0[0,]) ctx=D"#,
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_root_of_an_absent_saga_ends_at_its_total_deadline() -> Result<()> {
    let db = Database::new().await;
    absent::<RootHandler>(&db).await?;
    let root = db.client().launch(Root).total_deadline(past()).await?;
    assert!(matches!(ended_by_another(&db, root.id()).await?, Outcome::RolledBack(_)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_pending_root_of_an_absent_saga_ends() -> Result<()> {
    let db = Database::new().await;
    absent::<RootHandler>(&db).await?;
    let root = db.client().launch(Root).await?.id();
    db.client().cancel(root, "enough").await?;
    assert!(matches!(ended_by_another(&db, root).await?, Outcome::RolledBack(_)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn launcher_handles_the_failure_of_a_pending_child_of_an_absent_saga() -> Result<()> {
    let db = Database::new().await;
    absent::<ChildHandler>(&db).await?;
    let launcher = db.start((Launcher,)).await?;
    let root = launcher.launch(Root).await?;
    root.comes_to(|tree| tree.roots()[0].state == RunState::Waiting).await?;
    assert_eq!(ended_by_another(&db, root.id()).await?, Outcome::Committed);
    calls_of(&root).expect("hcf launcher/0");
    launcher.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_run_of_an_absent_saga_without_a_reason_to_give_up_waits_for_its_saga() -> Result<()> {
    let db = Database::new().await;
    absent::<RootHandler>(&db).await?;
    let (late, other) = {
        let client = db.client();
        (
            client.launch(Root).deadline(past()).await?,
            client.launch(Root).deadline(Duration::from_secs(600)).await?,
        )
    };
    assert!(matches!(ended_by_another(&db, late.id()).await?, Outcome::RolledBack(_)));
    let saga = db.start((RootHandler,)).await?;
    assert_eq!(saga.find(other.id()).await?.ends().await?, Outcome::Committed);
    saga.shutdown().await?;
    Ok(())
}

/// A launch that began before the retirement and committed after it leaves such a child.
#[tokio::test(flavor = "multi_thread")]
async fn parent_does_not_wait_for_a_child_whose_handler_was_retired_with_its_pending_runs() -> Result<()> {
    let db = Database::new().await;
    absent::<ChildHandler>(&db).await?;
    let scoop = db.start((Waiter,)).await?;
    let root = scoop.launch(Root).await?;
    root.comes_to(|tree| tree.roots()[0].state == RunState::Waiting).await?;
    db.execute(
        "UPDATE scoop.handler SET retired_at = clock_timestamp(), dropped_at = clock_timestamp()
         WHERE handler = 'child-handler'",
    )
    .await;
    assert_eq!(ended_by_another(&db, root.id()).await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}
