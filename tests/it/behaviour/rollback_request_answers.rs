//! Answers to requests for a rollback.

use scoop::requests::RollbackAnswer;

use super::*;

handler! {
    Unrepeatable: "cannot-be-undone" on Root;
    step "act" act [rollback = undo] => done();
    rollback undo => fails(SIMULATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_on_request_is_not_reported_as_undone() -> Result<()> {
    let run = Run::commits((Unrepeatable,), Root).await?;
    assert_eq!(run.scoop.rollback(run.root.id(), "undo").await?, RollbackAnswer::Accepted);
    assert!(matches!(run.root.ends().await?, Outcome::RollbackFailed(_)));
    assert_eq!(run.scoop.rollback(run.root.id(), "undo").await?, RollbackAnswer::FailedBefore);
    Ok(())
}

handler! {
    Broken: "fails-and-cannot-be-undone" on Child;
    step "act" act [rollback = undo] => done();
    step "fail" fail => fails(SIMULATED);
    rollback undo => fails(SIMULATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_without_a_request_is_not_reported_as_undone() -> Result<()> {
    let run = Run::fails_to_roll_back((Broken,), Child).await?;
    assert_eq!(run.scoop.rollback(run.root.id(), "undo").await?, RollbackAnswer::FailedBefore);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_put_back_records_no_rollback_before_its_run() -> Result<()> {
    let run = Run::launch((Unrepeatable,), Root).await?;
    run.root.ends().await?;
    run.db.execute("UPDATE scoop.message_event SET created_at = created_at + interval '1 hour'").await;
    run.db.execute("UPDATE scoop.ended_run SET ended_at = ended_at + interval '1 hour'").await;
    assert_eq!(run.scoop.rollback(run.root.id(), "undo").await?, RollbackAnswer::Accepted);
    run.root.ends().await?;
    run.history().await.of(&["cannot-be-undone"]).expect(
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
