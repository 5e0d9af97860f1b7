//! A run that is taken over, even by the process that had it before, is settled once.

use std::time::Duration;

use super::*;
use crate::support::{Database, Gate};

handler! {
    RootHandler(gate): "root-handler" on Root;
    step "0" zero => at_gate().then(launches(Child));
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero => done();
}

/// On one thread, so that both outcomes are written in the same batch.
#[tokio::test]
async fn a_run_taken_over_by_the_same_process_is_settled_once() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>();
    let scoop = scoop.provide(RootHandler { gate: gate.clone() }).poll_interval(Duration::from_millis(50));
    let scoop = scoop.start().await?;
    let root = scoop.launch(Root).await?;
    gate.arrivals(1).await;
    // Another process does this when it finds our session gone for a moment.
    db.execute(
        "UPDATE scoop.run SET state = 'ready', owner = NULL, ready_at = clock_timestamp()
         WHERE state = 'running'",
    )
    .await;
    gate.arrivals(1).await;
    gate.open(2);
    assert_eq!(root.ends().await?, Outcome::Committed);
    db.history().await.of(&["root-handler"]).about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M0 SUSPENDED root-handler 0
        M0 COMMITTED root-handler 0",
    );
    assert_eq!(db.number("SELECT count(*) FROM scoop.message WHERE topic = 'child-topic'").await, 1);
    Ok(())
}

mod of_a_rollback {
    use super::*;

    handler! {
        UndoneHandler { gate: Gate, way_back: Gate }: "undone-handler" on Root;
        step "0" zero => done();

        #[step(name = "1", rollback = undo)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            sqlx::query("INSERT INTO effect VALUES (1)").execute(scope.tx().await?).await?;
            self.gate.pass().await;
            Ok(())
        }

        async fn undo(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            self.way_back.pass().await;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn owner_of_a_forward_epoch_cannot_settle_the_rollback() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        let (late, open, way_back) = (Gate::default(), Gate::default(), Gate::default());
        open.open(1);
        let start = async |gate: &Gate| {
            let saga = UndoneHandler { gate: gate.clone(), way_back: way_back.clone() };
            let pool = db.another_pool(6).await;
            let scoop = Scoop::builder().postgres(pool).only::<UndoneHandler>().provide(saga);
            scoop.concurrency(1).start().await
        };
        let zombie = start(&late).await?;
        let root = zombie.launch(Root).await?;
        late.arrivals(1).await;

        // Another process takes it for dead, and executes its run.
        let heir = start(&open).await?;
        db.execute(
            "UPDATE scoop.run SET state = 'ready', owner = NULL, ready_at = clock_timestamp()
             WHERE state = 'running'",
        )
        .await;
        let root = heir.find(root.id()).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        assert_eq!(
            heir.rollback(root.id(), "it came back").await?,
            scoop::requests::RollbackAnswer::Accepted
        );
        way_back.arrivals(1).await;

        // Now it comes back to life, with an epoch that a fresh row would come to as well.
        late.open(1);
        zombie.shutdown().await?;
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 1);
        way_back.open(1);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        Ok(())
    }
}
