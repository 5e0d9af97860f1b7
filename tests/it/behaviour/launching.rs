//! Launches of messages, and their outcomes.

use std::future::{IntoFuture, poll_fn};
use std::task::Poll;

use futures_util::future::join_all;
use scoop::tree::RunState;
use scoop::{Handle, RuntimeError, Status};

use super::*;
use crate::support::{Database, Gate, eventually};

handler! {
    RootHandler: "root-handler" on Root;
    step "0" zero => done();
}

handler! {
    FailingHandler: "failing-handler" on Root;
    step "0" zero => fails(SIMULATED);
}

handler! {
    AlsoFailingHandler: "also-failing-handler" on Root;
    step "0" zero => fails(SIMULATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_launched_in_a_transaction_exists_when_that_commits() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((RootHandler,)).await?;
    let mut tx = db.pool().begin().await?;
    let root = scoop.launch(Root).in_transaction(&mut tx).await?;
    let missing = root.wait().await.expect_err("its transaction is open");
    let text = format!("there is no message {};", root.message_id());
    assert!(missing.is_not_found() && missing.to_string().starts_with(&text), "{missing}");
    tx.commit().await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_launched_in_a_transaction_is_gone_when_that_rolls_back() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((RootHandler,)).await?;
    let mut tx = db.pool().begin().await?;
    let root = scoop.launch(Root).in_transaction(&mut tx).await?;
    tx.rollback().await?;
    let missing = root.status().await.expect_err("its transaction was rolled back");
    assert!(missing.is_not_found() && missing.to_string().starts_with("there is no message "), "{missing}");
    assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await, 0);
    assert_eq!(db.history().await.rows().len(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_many_messages_are_launched_or_none() -> Result<()> {
    let db = Database::new().await;
    let scoop = db
        .scoop()
        .only::<RootHandler>()
        .limits(scoop::Limits::default().payload_bytes_max(50))
        .start()
        .await?;
    let roots = scoop.launch_all((0..100).map(|_| Root)).await?;
    for root in &roots {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    let history = db.history().await;
    assert_eq!(
        (history.count("EMITTED"), history.count("SEEN"), history.count("COMMITTED")),
        (100, 100, 100)
    );

    let refused = scoop.launch_all([Long("x".into()), Long("x".repeat(50))]).await.map(drop);
    let refused = refused.expect_err("one is too large");
    let text = refused.to_string();
    assert!(refused.is_invalid() && text.contains(" bytes as JSON, more than the "), "{text}");
    assert!(text.ends_with("or raise `payload_bytes_max`"), "{text}");
    assert_eq!(db.history().await.count("EMITTED"), 100);
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
struct Long(String);

/// The code of the server for the error of an operation that was not repeated.
fn code_of(error: &RuntimeError) -> Option<String> {
    assert!(error.to_string().starts_with("the database failed while "), "{error}");
    assert!(!error.is_unavailable(), "{error}");
    let source = std::error::Error::source(error)?.downcast_ref::<sqlx::Error>()?;
    Some(source.as_database_error()?.code()?.into_owned())
}

/// The results of launches that begin while another session has the messages locked.
async fn launched_at_once(
    db: &Database,
    texts: impl Iterator<Item = String>,
) -> Result<Vec<Result<Handle, RuntimeError>>> {
    let client = Scoop::client(db.pool().clone());
    let mut tx = db.another_pool(1).await.begin().await?;
    sqlx::query("LOCK TABLE scoop.message IN SHARE MODE").execute(&mut *tx).await?;
    let mut launches: Vec<_> = texts.map(|text| client.launch(Long(text)).into_future()).collect();
    // All of them are there before the first is written.
    poll_fn(|context| {
        let pending = launches.iter_mut().all(|launch| launch.as_mut().poll(context).is_pending());
        assert!(pending, "none can be written");
        Poll::Ready(())
    })
    .await;
    tx.commit().await?;
    Ok(join_all(launches).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_launches_of_a_client_are_committed_together() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((LongHandler,)).await?;
    let launched = launched_at_once(&db, (0..50).map(|n| n.to_string())).await?;
    let mut ids = vec![];
    for root in launched {
        let root = root?;
        assert_eq!(scoop.find(root.id()).await?.ends().await?, Outcome::Committed);
        ids.push(root.message_id());
    }
    assert_eq!(db.number("SELECT count(DISTINCT id) FROM scoop.message").await, 50);
    let transactions = db.number("SELECT count(DISTINCT xmin::text) FROM scoop.message").await;
    assert!(transactions <= 4, "{transactions} transactions");
    // Each has its own handle.
    for (n, id) in ids.iter().enumerate() {
        let payload = format!("SELECT payload #>> '{{}}' FROM scoop.message WHERE id = '{id}'");
        assert_eq!(db.texts(&payload).await, [n.to_string()]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_launch_does_not_stop_the_others_of_its_batch() -> Result<()> {
    let db = Database::new().await;
    db.start((LongHandler,)).await?.shutdown().await?;
    db.execute("ALTER TABLE scoop.message ADD CHECK (payload <> '\"7\"')").await;
    let launched = launched_at_once(&db, (0..10).map(|n| n.to_string())).await?;
    for (n, root) in launched.into_iter().enumerate() {
        match root {
            Ok(root) => assert_eq!((root.status().await?, n == 7), (Status::Unfinished, false)),
            Err(error) => assert_eq!((n, code_of(&error).as_deref()), (7, Some("23514")), "{error}"),
        }
    }
    assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 9);
    let alone = Scoop::client(db.pool().clone()).launch(Long("7".into())).await.err();
    let alone = alone.expect("it is refused");
    assert_eq!(code_of(&alone).as_deref(), Some("23514"), "{alone:?}");
    Ok(())
}

handler! {
    LongHandler: "long-handler" on Long;
    step "0" zero => done();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_handler_is_unhandled_at_once() -> Result<()> {
    let run = Run::launch((RootHandler,), Child).await?;
    assert_eq!(run.root.status().await?, Status::Ended(Outcome::NoHandlers));
    assert!(run.root.tree().await?.roots().is_empty());
    Ok(())
}

/// Handlers of one root message are hierarchies beside each other: none undoes another.
#[tokio::test(flavor = "multi_thread")]
async fn of_several_handlers_the_worst_outcome_counts() -> Result<()> {
    let run = Run::launch((RootHandler, FailingHandler), Root).await?;
    let Outcome::RolledBack(failure) = run.root.ends().await? else { panic!("one failed") };
    assert_eq!(failure.message, SIMULATED.to_string());
    let states = run.root.tree().await?.runs().iter().map(|run| run.state.clone()).collect::<Vec<_>>();
    assert!(states.contains(&RunState::Committed), "{states:?}");
    assert!(states.contains(&RunState::RolledBack(failure)), "{states:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_several_handlers_are_combined() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((AlsoFailingHandler, FailingHandler)).await?;
    let Outcome::RolledBack(failure) = scoop.launch(Root).await?.ends().await? else { panic!("both failed") };
    assert_eq!((&*failure.kind, failure.causes.len()), ("HandlersFailed", 2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_launches_waits_and_finds() -> Result<()> {
    let db = Database::new().await;
    let _server = db.start((RootHandler,)).await?;
    let client = Scoop::client(db.another_pool(2).await);
    let root = client.launch(Root).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);

    let found = client.find(root.id()).await?;
    assert_eq!(found.message_id(), root.message_id());
    assert_eq!(found.status().await?, Status::Ended(Outcome::Committed));
    let unknown = uuid::Uuid::new_v4();
    let missing = client.find(unknown).await.err();
    let text = format!("there is no message {unknown};");
    assert!(missing.is_some_and(|it| it.is_not_found() && it.to_string().starts_with(&text)));
    Ok(())
}

/// A message launched while no process runs its handler waits for one.
#[tokio::test(flavor = "multi_thread")]
async fn registered_handler_gets_messages_launched_in_its_absence() -> Result<()> {
    let db = Database::new().await;
    db.start((RootHandler,)).await?.shutdown().await?;
    let root = Scoop::client(db.pool().clone()).launch(Root).await?;
    assert_eq!(root.status().await?, Status::Unfinished);
    assert_eq!(root.tree().await?.roots()[0].state, RunState::Pending);

    let _scoop = db.start((RootHandler,)).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

mod detached {
    use super::*;

    handler! {
        Launching: "root-handler" on Root;
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.detach(Child).await?;
            Ok(())
        }

        step "1" one => fails(SIMULATED);
    }

    handler! {
        ChildHandler(gate): "child-handler" on Child;
        step "0" zero => at_gate();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_detached_message_is_neither_waited_for_nor_undone() -> Result<()> {
        let gate = Gate::default();
        let run = Run::launch((Launching, ChildHandler { gate: gate.clone() }), Root).await?;
        gate.arrivals(1).await;
        assert!(matches!(run.root.ends().await?, Outcome::RolledBack(_)));
        gate.open(1);
        eventually("the child has committed", async || run.history().await.count("COMMITTED") == 1).await;

        let history = run.history().await;
        history.about(&["M0"]).expect(
            "M0 EMITTED · · L=[R]
            M0 SEEN root-handler · L=[R,a]
            M0 SUSPENDED root-handler 0 next=1
            M0 ROLLING_BACK root-handler 1
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        history.about(&["M1"]).expect(
            "M1 EMITTED · · L=[Q]
            M1 SEEN child-handler · L=[Q,a]
            M1 SUSPENDED child-handler 0
            M1 COMMITTED child-handler 0",
        );
        Ok(())
    }
}

mod tree {
    use super::*;

    handler! {
        Launching: "root-handler" on Root;
        step "0" zero => launches(Child);
    }

    handler! {
        ChildHandler(gate): "child-handler" on Child;
        step "0" zero => at_gate().then(fails(SIMULATED));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_tree_shows_how_far_each_run_is() -> Result<()> {
        let gate = Gate::default();
        let run = Run::launch((Launching, ChildHandler { gate: gate.clone() }), Root).await?;
        gate.arrivals(1).await;
        let tree = run.root.tree().await?;
        let [parent] = tree.roots() else { panic!("{tree}") };
        let [child] = &*parent.children else { panic!("{tree}") };
        assert_eq!((&parent.state, &child.state), (&RunState::Waiting, &RunState::Running), "{tree}");
        assert_eq!((&*child.handler, &*child.topic), ("child-handler", "child-topic"));

        gate.open(1);
        run.root.ends().await?;
        let tree = run.root.tree().await?;
        let shown = tree.to_string();
        assert_eq!(tree.runs().len(), 2, "{tree}");
        for part in [
            "root-handler (on root-topic): rolled back: Simulated",
            "└─ child-handler (on child-topic): rolled back",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
        Ok(())
    }
}
