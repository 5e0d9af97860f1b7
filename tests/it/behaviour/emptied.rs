//! Tables that a test suite empties while a program runs.

use std::time::Duration;

use scoop::pauses::PauseTarget;

use super::*;
use crate::support::{Database, eventually};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

handler! {
    ParentHandler: "emptied-parent" on Root;
    step "0" zero => launches(Child);
    step "1" one => done();
}

handler! {
    SecondHandler: "emptied-child" on Child;
    step "0" zero => done();
}

/// Everything of its type and its saga that a start records.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "emptied.secret", retention = "90 days", redact(text), find_by(number))]
struct Secret {
    number: u32,
    text: String,
}

#[derive(Default)]
struct Limited;

#[saga(name = "emptied-limited", concurrency = 3)]
#[subscribes(Secret)]
impl Limited {
    #[step]
    async fn read(&self, _: &mut Scope<'_>, _: &Secret) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Nightly;

#[saga(name = "emptied-nightly", every = "1d")]
#[subscribes(scoop::Tick)]
impl Nightly {
    #[step]
    async fn report(&self, _: &mut Scope<'_>, _: &scoop::Tick) -> Result<()> {
        Ok(())
    }
}

fn program(db: &Database) -> scoop::Builder {
    let builder = db.scoop().poll_interval(NEVER).only::<ParentHandler>().only::<SecondHandler>();
    builder.only::<Limited>().only::<Nightly>()
}

/// What a program and the migrations record once.
async fn recorded(db: &Database) -> Vec<String> {
    let listed = db.texts(
        "SELECT 'definition of ' || handler FROM scoop.definition WHERE handler LIKE 'emptied-%'
         UNION ALL SELECT topic || ' to ' || handler FROM scoop.handler WHERE retired_at IS NULL
         UNION ALL SELECT topic || ' for ' || committed FROM scoop.keep_time WHERE handler LIKE 'emptied-%'
         UNION ALL SELECT topic || ' without ' || field FROM scoop.redaction
         UNION ALL SELECT topic || ' by ' || name || ', a ' || kind FROM scoop.find_field
         UNION ALL SELECT 'limit of ' || saga FROM scoop.run_limit
         UNION ALL SELECT 'schedule of ' || handler FROM scoop.schedule
         UNION ALL SELECT 'worker of ' || array_to_string(handlers, ',') FROM scoop.worker
         UNION ALL SELECT 'ballast: ' || (count(*) > 0) FROM scoop.run WHERE handler = 'none'
         ORDER BY 1",
    );
    listed.await
}

/// Has the worker look at the topology without polling.
async fn wake(db: &Database) -> Result<()> {
    let paused = PauseTarget::topic("elsewhere");
    db.client().operate().pauses().pause(paused.clone()).await?;
    db.client().operate().pauses().resume(paused).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn program_whose_tables_are_emptied_is_registered_again() -> Result<()> {
    let db = Database::new().await;
    let scoop = program(&db).start().await?;
    assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
    let before = recorded(&db).await;
    assert_eq!(before.len(), 18, "{before:#?}");
    assert!(scoop.health().await.is_ready());
    db.execute(
        "DO $$ BEGIN EXECUTE (
             SELECT 'TRUNCATE ' || string_agg(format('scoop.%I', tablename), ', ') FROM pg_tables WHERE schemaname = 'scoop'
         ); END $$",
    )
    .await;
    let health = scoop.health().await;
    assert!(health.is_live() && !health.is_registered && !health.is_ready(), "{health:?}");

    wake(&db).await?;
    eventually("the program is registered", async || scoop.health().await.is_ready()).await;
    eventually("what it recorded", async || recorded(&db).await == before).await;
    for launcher in [&scoop, &db.client()] {
        assert_eq!(launcher.launch(Root).await?.ends().await?, Outcome::Committed);
        assert_eq!(
            launcher.launch(Secret { number: 7, text: "x".into() }).await?.ends().await?,
            Outcome::Committed
        );
    }
    // The record of the migrations is gone, too.
    let other = program(&db).start().await?;
    assert_eq!(db.client().launch(Root).await?.ends().await?, Outcome::Committed);
    other.shutdown().await?;
    db.execute("SELECT scoop.retention_next(gen_random_uuid(), 0, 0, 1, false)").await;
    assert_eq!(db.number("SELECT count(*) FROM scoop.retention").await, 1);
    Ok(())
}

/// A worker whose session is renewed looks, too; otherwise it does so once a minute.
#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_that_are_lost_are_restored_and_ended_ones_are_not() -> Result<()> {
    let db = Database::new().await;
    let scoop = program(&db).start().await?;
    db.client().operate().handlers().retire("emptied.secret", "emptied-limited").await?;
    db.execute("DELETE FROM scoop.handler WHERE handler = 'emptied-parent'").await;
    assert!(!scoop.health().await.is_registered);
    db.execute("SELECT pg_terminate_backend(backend) FROM scoop.worker").await;
    eventually("the subscription is restored", async || scoop.health().await.is_registered).await;
    assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
    let retired = scoop.launch(Secret { number: 7, text: "x".into() }).await?;
    assert_eq!(retired.ends().await?, Outcome::NoHandlers);
    Ok(())
}
