//! The row of the end of a run is gone. Its parent gets stuck and names it, and goes on when the row is back; clients get an error.

use scoop::operate::OperateError;
use uuid::Uuid;

use super::*;
use crate::support::{Database, Gate, eventually};

#[derive(Message, Serialize, Deserialize)]
struct Look {
    /// Or fails.
    looks: bool,
}

/// Launches a child, and asks for its outcome later.
struct Parent {
    gate: Gate,
}

#[saga(name = "missing-ends-parent")]
#[subscribes(Look)]
impl Parent {
    #[step(rollback = undo)]
    async fn launch(&self, scope: &mut Scope<'_>, _: &Look) -> Result<()> {
        scope.launch(Child).await?;
        Ok(())
    }

    #[step]
    async fn look(&self, scope: &mut Scope<'_>, look: &Look) -> Result<()> {
        self.gate.pass().await;
        assert!(!look.looks || scope.children().await?.len() == 1);
        if look.looks { Ok(()) } else { Err(SIMULATED.into()) }
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Look, _: &Failure) -> Result<()> {
        Ok(())
    }
}

handler! {
    Undone: "missing-ends-undone" on Child;
    step "do" act [rollback = undo] => done();
    rollback undo => done();
}

/// Deletes the row of the child's end while the parent is in its second step. Returns the end of the parent, after the row is back.
async fn end_with_a_missing_row(looks: bool) -> Result<Outcome> {
    let (db, gate) = (Database::new().await, Gate::default());
    let builder = db.scoop().only::<Parent>().provide(Parent { gate: gate.clone() }).only::<Undone>();
    let scoop = builder.start().await?;
    let parent = scoop.launch(Look { looks }).await?;
    gate.arrivals(1).await;
    db.execute("CREATE TABLE public.taken AS SELECT * FROM scoop.ended_run").await;
    db.execute("DELETE FROM scoop.ended_run").await;
    gate.open(2);
    eventually("the parent is stuck", async || {
        scoop.operate().failures().stuck().await.is_ok_and(|runs| runs.len() == 1)
    })
    .await;
    let stuck = scoop.operate().failures().stuck().await?.remove(0);
    let child: Uuid = sqlx::query_scalar("SELECT id FROM public.taken").fetch_one(db.pool()).await?;
    let expected = format!("run {child} of hierarchy {} has begun, and has no row", parent.id());
    assert!(stuck.reason.contains(&expected), "{stuck:?}");
    assert_eq!(stuck.handler, "missing-ends-parent");

    db.execute("INSERT INTO scoop.ended_run SELECT * FROM public.taken").await;
    scoop.operate().failures().retry(stuck.id()).await?;
    let outcome = parent.ends().await?;
    let undone = "SELECT count(*) FROM scoop.message_event WHERE type = 'ROLLED_BACK' AND coroutine_name = 'missing-ends-undone'";
    assert_eq!(db.number(undone).await, i64::from(!looks));
    scoop.shutdown().await?;
    Ok(outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_of_a_child_whose_end_is_missing_waits_for_an_operator() -> Result<()> {
    assert!(matches!(end_with_a_missing_row(false).await?, Outcome::RolledBack(_)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_asks_for_a_child_whose_end_is_missing_waits_for_an_operator() -> Result<()> {
    assert_eq!(end_with_a_missing_row(true).await?, Outcome::Committed);
    Ok(())
}

/// The message of a client.
#[tokio::test(flavor = "multi_thread")]
async fn wait_and_requests_about_a_hierarchy_whose_end_is_missing_fail() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Undone>().start().await?;
    let root = scoop.launch(Child).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    db.execute("DELETE FROM scoop.ended_run").await;
    let answers = [
        scoop.find(root.id()).await?.wait().await.map(drop).map_err(OperateError::from),
        scoop.operate().runs().relaunch(root.id(), "again").await.map(drop),
        scoop.rollback(root.id(), "wrong").await.map(drop).map_err(OperateError::from),
    ];
    for answer in answers {
        let why = format!("{:?}", answer.expect_err("nobody knows what became of it"));
        assert!(why.contains("has begun, and has no row in run or in ended_run"), "{why}");
    }
    assert!(root.tree().await?.to_string().contains("somebody has deleted it"));
    scoop.shutdown().await?;
    Ok(())
}
