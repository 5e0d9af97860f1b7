//! Answers to requests for a rollback.

use scoop::RollbackAnswer;

use super::*;
use crate::support::Database;

#[derive(Default)]
struct Unrepeatable;

#[saga(name = "cannot-be-undone")]
#[subscribes(Root)]
impl Unrepeatable {
    #[step(rollback = undo)]
    async fn act(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
        Err(SIMULATED)?
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_on_request_is_not_reported_as_undone() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Unrepeatable>().start().await?;
    let root = scoop.launch(Root).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(scoop.rollback(root.id(), "undo").await?, RollbackAnswer::Accepted);
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
    assert_eq!(scoop.rollback(root.id(), "undo").await?, RollbackAnswer::FailedBefore);
    Ok(())
}

#[derive(Default)]
struct Broken;

#[saga(name = "fails-and-cannot-be-undone")]
#[subscribes(Child)]
impl Broken {
    #[step(rollback = undo)]
    async fn act(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn fail(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
        Err(SIMULATED)?
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
        Err(SIMULATED)?
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_without_a_request_is_not_reported_as_undone() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Broken>().start().await?;
    let root = scoop.launch(Child).await?;
    assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
    assert_eq!(scoop.rollback(root.id(), "undo").await?, RollbackAnswer::FailedBefore);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_put_back_records_no_rollback_before_its_run() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Unrepeatable>().start().await?;
    let root = scoop.launch(Root).await?;
    root.ends().await?;
    db.execute("UPDATE scoop.message_event SET created_at = created_at + interval '1 hour'").await;
    assert_eq!(scoop.rollback(root.id(), "undo").await?, RollbackAnswer::Accepted);
    root.ends().await?;
    db.history().await.of(&["cannot-be-undone"]).expect(
        r#"
        M0 EMITTED · ·
        M0 SEEN cannot-be-undone ·
        M0 SUSPENDED cannot-be-undone act
        M0 COMMITTED cannot-be-undone act
        M0 ROLLBACK_EMITTED · ·
        M0 ROLLING_BACK cannot-be-undone ·
        M0 SUSPENDED cannot-be-undone RBC(act[0,])
        M0 ROLLBACK_FAILED cannot-be-undone RB(act[0,])
        "#,
    );
    Ok(())
}
