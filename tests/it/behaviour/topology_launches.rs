//! Who launches what, as the topology has it.

use scoop::Scoop;

use super::*;
use crate::support::{Database, Notes};

handler! {
    RootHandler: "root-handler" on Root;
    step "0" zero [rollback = undo, on_child_failure = handle, finally = clean_up] => launches(Child);
    step "1" one => fails(SIMULATED);
    rollback undo => launches(Grandchild);
    on_child_failure handle => passes_on();
    async fn clean_up(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        scope.launch(Finally).await?;
        scope.detach_unique(Child2, "once").await?;
        Ok(())
    }
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero => done();
}

handler! {
    Declaring: "declaring" on Grandchild;
    step "0" zero [launches(Child), rollback = undo, on_child_failure = handle] => launches(Child);
    step "1" one [launches(Finally)] => launches(Child2);
    rollback undo => launches(Root);
    on_child_failure handle => passes_on();
}

handler! {
    Untyped: "untyped" on Child2;
    #[step(name = "0", launches())]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Child2) -> Result<()> {
        scope.launch_untyped("child-topic", serde_json::json!(null)).await?;
        Ok(())
    }
}

/// The launches, by saga, step and topic.
async fn seen(scoop: &Scoop) -> Result<Vec<String>> {
    let launches = scoop.operate().topology().await?.launches;
    assert!(launches.iter().all(|it| it.seen_at.is_some() && !it.is_declared));
    Ok(launches.iter().map(|it| format!("{} {} {}", it.saga, it.step, it.topic)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn launches_of_a_step_and_its_functions_are_in_the_topology() -> Result<()> {
    let db = Database::new().await;
    let client = db.client();
    assert_eq!(seen(&client).await?, Vec::<String>::new());
    let scoop = db.start((RootHandler, ChildHandler)).await?;
    for _ in 0..2 {
        scoop.launch(Root).await?.ends().await?;
    }
    // What is noted is recorded by then.
    scoop.shutdown().await?;
    let expected = ["child-topic", "child-topic-2", "finally-topic", "grandchild-topic"];
    let expected = expected.map(|topic| format!("root-handler 0 {topic}"));
    assert_eq!(seen(&client).await?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_launch_is_not_written_by_a_later_process() -> Result<()> {
    let db = Database::new().await;
    for _ in 0..2 {
        let scoop = db.start((RootHandler, ChildHandler)).await?;
        let recorded = seen(&scoop).await?.len();
        // The process has read the rows at its start.
        db.execute("DELETE FROM scoop.launches").await;
        scoop.launch(Root).await?.ends().await?;
        scoop.shutdown().await?;
        let written = seen(&db.client()).await?.len();
        assert_eq!(written, if recorded == 0 { 4 } else { 0 });
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_launches_are_in_the_topology_before_any_run() -> Result<()> {
    let db = Database::new().await;
    let client = db.client();
    db.start((Declaring,)).await?.shutdown().await?;
    let declared = client.operate().topology().await?.launches;
    assert!(declared.iter().all(|it| it.is_declared && it.seen_at.is_none()));
    let declared: Vec<_> =
        declared.iter().map(|it| format!("{} {} {}", it.saga, it.step, it.topic)).collect();
    assert_eq!(declared, ["declaring 0 child-topic", "declaring 1 finally-topic"]);
    // As by a program that has declared others.
    db.execute(
        "INSERT INTO scoop.launches VALUES ('declaring', '0', 'former', true, NULL), ('declaring', '0', 'seen', true, now()), \
         ('other', '0', 'former', true, NULL)",
    )
    .await;
    db.start((Declaring,)).await?.shutdown().await?;
    let topics =
        db.texts("SELECT saga || ' ' || topic || ' ' || declared FROM scoop.launches ORDER BY 1").await;
    let expected = [
        "declaring child-topic true",
        "declaring finally-topic true",
        "declaring seen false",
        "other former true",
    ];
    assert_eq!(topics, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn undeclared_launch_fails_the_step() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Declaring, Untyped)).await?;
    let failed = scoop.launch(Grandchild).await?;
    let Outcome::RollbackFailed(failure) = failed.ends().await? else {
        panic!("the compensation fails, too")
    };
    let text = format!("{failure} because {}", failure.cause);
    let undeclared = "step `1` of saga `declaring` launches a message on topic `child-topic-2`, which it does not declare; add \
                      `scoop_test_support::messages::Child2` to `launches(..)` in the `#[step(..)]` of that step";
    assert!(text.contains(undeclared), "{text}");
    let in_compensation = "step `0` of saga `declaring` launches a message on topic `root-topic`";
    assert!(text.contains(in_compensation), "{text}");

    let outcome = scoop.launch(Child2).await?.ends().await?;
    let Outcome::RolledBack(failure) = outcome else { panic!("it is {outcome:?}") };
    let text = failure.to_string();
    let untyped = "step `0` of saga `untyped` launches a message on topic `child-topic`, which it does not declare; add the type \
                   of such messages to `launches(..)`";
    assert!(text.contains(untyped), "{text}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn event_of_a_command_is_a_launch_in_the_topology() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = super::commands::start(&db, &notes).await?;
    super::commands::deliver(&scoop, 1, 5).await?;
    scoop.shutdown().await?;
    let launches = db.client().operate().topology().await?.launches;
    assert!(launches.iter().any(|it| it.topic == "shelf.delivered" && it.seen_at.is_some()), "{launches:?}");
    Ok(())
}
