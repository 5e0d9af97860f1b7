//! Joint commit of a step's own writes and its rows (scenarios JA).

use super::*;
use crate::support::Database;

/// The handler of both scenarios; the message says whether it fails after all is done.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Sale {
    fails: bool,
}

#[derive(Default)]
struct CommitHandler;

#[saga(name = "jta-commit-handler")]
#[subscribes(Sale)]
impl CommitHandler {
    #[step(name = "0")]
    async fn zero(&self, scope: &mut Scope<'_>, sale: &Sale) -> Result<()> {
        scope.launch(Child).await?;
        sqlx::query("INSERT INTO business VALUES (1)").execute(scope.tx().await?).await?;
        if sale.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero => done();
}

/// How it ends, and how many business rows there are then.
async fn sell(db: &Database, fails: bool) -> Result<(Outcome, i64)> {
    db.execute("CREATE TABLE business (n int)").await;
    let scoop = db.start((CommitHandler, ChildHandler)).await?;
    let outcome = scoop.launch(Sale { fails }).await?.ends().await?;
    Ok((outcome, db.number("SELECT count(*) FROM business").await))
}

#[tokio::test(flavor = "multi_thread")]
async fn ja_01_business_rows_and_event_rows_commit_together() -> Result<()> {
    let db = Database::new().await;
    assert_eq!(sell(&db, false).await?, (Outcome::Committed, 1));
    db.history().await.of(&["jta-commit-handler"]).expect(
        "M0 EMITTED · ·
        M0 SEEN jta-commit-handler ·
        M1 EMITTED jta-commit-handler 0
        M0 SUSPENDED jta-commit-handler 0
        M0 COMMITTED jta-commit-handler 0",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ja_02_and_roll_back_together() -> Result<()> {
    let db = Database::new().await;
    let (outcome, rows) = sell(&db, true).await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)));
    assert_eq!(rows, 0);
    db.history().await.expect(
        "M0 EMITTED · ·
        M0 SEEN jta-commit-handler ·
        M0 ROLLING_BACK jta-commit-handler 0 exc=RTE(Simulated failure to test rollback)@jta-commit-handler
        M0 ROLLED_BACK jta-commit-handler RB(0[0,])",
    );
    Ok(())
}
