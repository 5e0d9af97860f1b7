//! Handlers that a new build of a service does not have: they are retired when the last process with them has ended.

use scoop::errors::SetupError;
use scoop::{Builder, Scoop};

use super::*;
use crate::support::{Database, Notes, eventually, in_a_process_that_dies};

handler! {
    Orders: "orders" on Root;
    step "0" zero => done();
}

handler! {
    Letters: "letters" on Child;
    step "0" zero => done();
}

/// A program with orders and letters.
async fn with_letters(db: &Database, build: &str) -> Builder {
    without_letters(db, build).await.only::<Letters>()
}

/// A program with orders only.
async fn without_letters(db: &Database, build: &str) -> Builder {
    shop(Scoop::builder().postgres(db.another_pool(6).await), build)
}

/// A program with orders, which keeps no other handler.
fn shop(builder: Builder, build: &str) -> Builder {
    builder.service("shop").build(build).only::<Orders>().retain_handlers([""; 0])
}

/// The registered handlers.
async fn registered(db: &Database) -> Vec<String> {
    db.texts("SELECT handler::text FROM scoop.handler WHERE retired_at IS NULL ORDER BY 1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_is_retired_when_the_last_process_with_it_has_ended() -> Result<()> {
    let db = Database::new().await;
    let first = with_letters(&db, "1").await.start().await?;
    let second = with_letters(&db, "1").await.start().await?;
    let new = without_letters(&db, "2").await.start().await?;
    let topology = new.operate().topology().await?;
    let [shop] = &*topology.services else { panic!("{topology:?}") };
    let builds: Vec<_> = shop.builds.iter().map(|build| (&*build.id, build.workers)).collect();
    assert_eq!((&*shop.name, builds), ("shop", vec![("1", 2), ("2", 1)]));
    let letters = topology.handlers.iter().find(|it| it.saga == "letters").unwrap();
    assert_eq!((letters.service.as_deref(), letters.workers, letters.is_retired), (Some("shop"), 2, false));
    assert_eq!(letters.steps, ["0"]);

    first.shutdown().await?;
    assert_eq!(registered(&db).await, ["letters", "orders"]);
    second.shutdown().await?;
    assert_eq!(registered(&db).await, ["orders"]);
    assert_eq!(new.launch(Child).await?.ends().await?, Outcome::NoHandlers);

    // The former build comes back.
    let back = with_letters(&db, "1").await.start().await?;
    assert_eq!(registered(&db).await, ["letters", "orders"]);
    assert_eq!(back.launch(Child).await?.ends().await?, Outcome::Committed);
    new.shutdown().await?;
    back.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_of_a_dead_process_is_retired_when_that_is_reaped() -> Result<()> {
    let db = Database::new().await;
    let old = with_letters(&db, "1").await.start().await?;
    let new = without_letters(&db, "2").await.start().await?;
    in_a_process_that_dies(&db, move |it| async move {
        let dying = shop(it, "1").only::<Letters>().start().await?;
        old.shutdown().await?;
        Ok((dying, ()))
    })
    .await?;
    eventually("the retirement", async || registered(&db).await == ["orders"]).await;
    new.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_is_retired_when_a_new_build_starts_after_the_end_of_the_former_one() -> Result<()> {
    let db = Database::new().await;
    with_letters(&db, "1").await.start().await?.shutdown().await?;
    let new = without_letters(&db, "2").await.start().await?;
    assert_eq!(registered(&db).await, ["orders"]);
    new.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_handler_is_not_retired() -> Result<()> {
    let db = Database::new().await;
    let old = with_letters(&db, "1").await.start().await?;
    let new = without_letters(&db, "2").await.retain_handlers(["letters"]).start().await?;
    old.shutdown().await?;
    assert_eq!(registered(&db).await, ["letters", "orders"]);
    // By default a program that is restricted to some sagas keeps all others.
    new.shutdown().await?;
    let pool = db.another_pool(6).await;
    let new = Scoop::builder().postgres(pool).service("shop").build("3").only::<Orders>().start().await?;
    assert_eq!(registered(&db).await, ["letters", "orders"]);
    new.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn service_without_processes_keeps_its_handlers() -> Result<()> {
    let db = Database::new().await;
    for _ in 0..2 {
        with_letters(&db, "1").await.start().await?.shutdown().await?;
        assert_eq!(registered(&db).await, ["letters", "orders"]);
    }
    // Another process of the same build has fewer sagas.
    let fewer = without_letters(&db, "1").await.start().await?;
    assert_eq!(registered(&db).await, ["letters", "orders"]);
    fewer.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn services_do_not_retire_the_handlers_of_others() -> Result<()> {
    let db = Database::new().await;
    let old = with_letters(&db, "1").await.start().await?;
    let other = without_letters(&db, "2").await.service("other").start().await?;
    old.shutdown().await?;
    other.shutdown().await?;
    let other = without_letters(&db, "3").await.service("other").start().await?;
    assert_eq!(registered(&db).await, ["letters", "orders"]);
    // A handler of two services lives as long as one of them has it.
    let both = with_letters(&db, "1").await.service("third").start().await?;
    let new = without_letters(&db, "2").await.start().await?;
    assert_eq!(registered(&db).await, ["letters", "orders"]);
    for scoop in [both, other, new] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_the_newest_build_retires_nothing() -> Result<()> {
    let db = Database::new().await;
    // While a process of a former build, which never had the handler, lives.
    let old = without_letters(&db, "1").await.start().await?;
    with_letters(&db, "2").await.start().await?.shutdown().await?;
    assert_eq!(registered(&db).await, ["letters", "orders"]);
    old.shutdown().await?;
    // And if the only new process has crashed when the last old one ends.
    let old = with_letters(&db, "2").await.start().await?;
    in_a_process_that_dies(&db, |it| async { Ok((shop(it, "3").start().await?, ())) }).await?;
    let client = db.client();
    let is_dead = async || {
        client.operate().handlers().workers().await.unwrap().iter().all(|it| it.build == "2" || !it.is_alive)
    };
    eventually("the end of the crashed process", is_dead).await;
    old.shutdown().await?;
    assert_eq!(registered(&db).await, ["letters", "orders"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_handler_of_a_program_that_never_started_is_not_retired() -> Result<()> {
    let db = Database::new().await;
    db.client().operate().handlers().register("child-topic", "letters").await?;
    for build in ["1", "2"] {
        without_letters(&db, build).await.start().await?.shutdown().await?;
    }
    assert_eq!(registered(&db).await, ["letters", "orders"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn service_without_a_name_is_a_mistake() -> Result<()> {
    let db = Database::new().await;
    let started = without_letters(&db, "a\nb").await.service("").start().await;
    let Err(error) = started else { panic!("it starts") };
    let unfit = |it: &&SetupError| matches!(it, SetupError::UnfitName { .. });
    assert_eq!(error.setup().iter().filter(unfit).count(), 2, "{error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_that_a_living_process_has_is_registered_again_after_a_lost_session() -> Result<()> {
    let db = Database::new().await;
    let old = with_letters(&db, "1").await.start().await?;
    let new = without_letters(&db, "2").await.start().await?;
    // As if the old process had lost its session, and the reaper of the new one had been faster.
    db.execute(
        "UPDATE scoop.handler SET retired_at = clock_timestamp(), build = NULL, build_since = NULL WHERE handler = 'letters';
         SELECT pg_terminate_backend(backend) FROM scoop.worker WHERE build = '1'",
    )
    .await;
    eventually("the registration", async || registered(&db).await == ["letters", "orders"]).await;
    assert_eq!(new.launch(Child).await?.ends().await?, Outcome::Committed);
    old.shutdown().await?;
    new.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_listed_with_their_sagas_until_they_end() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let (first, second) =
        (super::untyped::start(&db, &notes).await?, super::untyped::start(&db, &notes).await?);
    let workers = first.operate().handlers().workers().await?;
    assert!(workers.iter().all(|worker| worker.is_alive) && workers.len() == 2, "{workers:?}");
    let sagas: Vec<_> = workers.iter().flat_map(|worker| &worker.sagas).collect();
    let names: Vec<_> = sagas.iter().map(|saga| (&*saga.topic, &*saga.handler)).collect();
    assert_eq!(names, [("untyped.order", "untyped-billing"); 2]);
    assert_eq!(sagas[0].definition, sagas[1].definition);
    first.shutdown().await?;
    assert_eq!(second.operate().handlers().workers().await?.len(), 1);
    assert!(second.operate().lacking_rights().await?.is_empty());
    second.shutdown().await?;
    Ok(())
}
