//! Due runs do not depend on polling: in these tests there is none for an hour.

use std::time::Duration;

use super::*;
use crate::support::Database;

const SOON: Duration = Duration::from_millis(150);

const HOUR: Duration = Duration::from_secs(3600);

handler! {
    RootHandler: "root-handler" on Root;
    step "begun" begun => done();
}

async fn program(db: &Database) -> Result<Scoop> {
    Ok(db.scoop().only::<RootHandler>().poll_interval(HOUR).start().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_message_is_handled_when_due() -> Result<()> {
    let db = Database::new().await;
    let root = program(&db).await?.launch(Root).delay(SOON).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    let early = "SELECT count(*) FROM scoop.message_event
                 WHERE type = 'SEEN' AND created_at < (context #>> '{SleepUntilKey,wakeAfter}')::timestamptz";
    assert_eq!(db.number(early).await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_message_of_a_transaction_is_handled_when_due() -> Result<()> {
    let db = Database::new().await;
    let scoop = program(&db).await?;
    let mut tx = db.pool().begin().await?;
    let root = scoop.launch(Root).delay(SOON).in_transaction(&mut tx).await?;
    tx.commit().await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_message_of_another_process_is_handled_when_due() -> Result<()> {
    let db = Database::new().await;
    let _scoop = program(&db).await?;
    let elsewhere = Scoop::client(db.another_pool(1).await);
    let root = elsewhere.launch(Root).delay(SOON).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_message_gives_up_at_its_deadline() -> Result<()> {
    let db = Database::new().await;
    let root = program(&db).await?.launch(Root).delay(HOUR).deadline(SOON).await?;
    let Outcome::RolledBack(failure) = root.ends().await? else {
        panic!("it did not roll back");
    };
    assert_eq!(failure.causes[0].kind, "MissedHappyPathDeadline");
    Ok(())
}

handler! {
    SleepyHandler: "sleepy-handler" on Root;
    step "sleep" sleep [sleep = "150ms"] => done();

    #[step(retry(max = 1, backoff = "150ms"))]
    async fn fail_once(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        if scope.attempt() == 0 { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sleeps_and_pauses_end_when_due() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<SleepyHandler>().poll_interval(HOUR).start().await?;
    assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
    Ok(())
}

handler! {
    WaitingHandler: "waiting-handler" on Root;
    step "wait" wait => launches(Child);
}

#[derive(Default)]
struct ChildHandler;

#[saga(name = "child-handler")]
#[subscribes(Child)]
impl ChildHandler {
    #[step]
    async fn wait(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
        let stop = scope.stop_signal();
        stop.raised().await;
        scope.check().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_ends_a_step_that_looks_and_its_waiting_parent() -> Result<()> {
    let db = Database::new().await;
    let scoop =
        db.scoop().only::<WaitingHandler>().only::<ChildHandler>().poll_interval(HOUR).start().await?;
    let root = scoop.launch(Root).deadline(SOON).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    Ok(())
}
