//! Redelivery of messages without a handler to handlers that are registered later.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::time::Duration;

use super::*;
use crate::support::{Database, Gate};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "redelivered.note")]
struct Note;

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "redelivered.trip")]
enum Trip {
    Launches,
    Detaches,
    Fails,
    Compensates,
    Waits,
}

#[derive(Clone, Default)]
struct Traveller {
    gate: Gate,
}

#[saga(name = "redelivered-traveller")]
#[subscribes(Trip)]
impl Traveller {
    #[step(rollback = tell)]
    async fn begin(&self, scope: &mut Scope<'_>, trip: &Trip) -> Result<()> {
        match trip {
            Trip::Launches | Trip::Fails | Trip::Waits => drop(scope.launch(Note).await?),
            Trip::Detaches => drop(scope.detach(Note).await?),
            Trip::Compensates => {}
        }
        Ok(())
    }

    async fn tell(&self, scope: &mut Scope<'_>, trip: &Trip, _: &Failure) -> Result<()> {
        if matches!(trip, Trip::Compensates) {
            scope.launch(Note).await?;
        }
        Ok(())
    }

    #[step]
    async fn end(&self, _: &mut Scope<'_>, trip: &Trip) -> Result<()> {
        match trip {
            Trip::Fails | Trip::Compensates => return Err(SIMULATED.into()),
            Trip::Waits => self.gate.pass().await,
            Trip::Launches | Trip::Detaches => {}
        }
        Ok(())
    }
}

handler! {
    Reader: "redelivered-reader" on Note;
    step "read" read => done().silently();
}

handler! {
    /// Subscribed to the same topic, later.
    SecondReader: "redelivered-second-reader" on Note;
    step "read" read => done().silently();
}

/// Registers the reader, and stops its program.
async fn register(db: &Database) -> Result<()> {
    db.start((Reader,)).await?.shutdown().await?;
    Ok(())
}

/// The number of messages that a redelivery takes.
async fn redelivered(scoop: &Scoop) -> Result<usize> {
    Ok(scoop.operate().handlers().redeliver(Note::TOPIC).await?.hierarchies.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_client_goes_on_in_its_hierarchy() -> Result<()> {
    let db = Database::new().await;
    db.start((Traveller::default(),)).await?.shutdown().await?;
    let client = db.client();
    let note = client.launch(Note).await?;
    assert_eq!(note.ends().await?, Outcome::NoHandlers);
    let tree = note.tree().await?;
    let (text, unhandled) = (tree.to_string(), tree.unhandled());
    assert!(text.starts_with("no handler (on redelivered.note): launched 2"), "{text}");
    assert!(text.ends_with("Z\n") && unhandled[0].at.is_some(), "{text}");
    assert_eq!((unhandled.len(), unhandled[0].message_id), (1, note.message_id()));

    let scoop = db.start((Reader,)).await?;
    let redelivered = scoop.operate().handlers().redeliver(Note::TOPIC).await?;
    assert_eq!((&redelivered.hierarchies[..], redelivered.more), (&[note.id()][..], false));
    assert_eq!(scoop.find(note.id()).await?.ends().await?, Outcome::Committed);
    assert!(note.tree().await?.unhandled().is_empty());
    assert!(scoop.operate().handlers().redeliver("redelivered.note").await?.hierarchies.is_empty());
    scoop.shutdown().await?;
    db.history().await.expect(
        "M0 EMITTED · ·
        M0 SEEN redelivered-reader ·
        M0 SUSPENDED redelivered-reader read
        M0 COMMITTED redelivered-reader read",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_step_starts_a_hierarchy_of_its_own() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Traveller::default(),)).await?;
    let trip = scoop.launch(Trip::Launches).await?;
    assert_eq!(trip.ends().await?, Outcome::Committed);
    let text = trip.tree().await?.to_string();
    assert!(
        text.lines().any(|line| line.starts_with("└─ no handler (on redelivered.note): launched 2")),
        "{text}"
    );
    scoop.shutdown().await?;

    let scoop = db.start((Reader,)).await?;
    let redelivered = scoop.operate().handlers().redeliver(Note::TOPIC).await?;
    let &[hierarchy] = &redelivered.hierarchies[..] else { panic!("{redelivered:?}") };
    assert_ne!(hierarchy, trip.id());
    assert_eq!(scoop.find(hierarchy).await?.ends().await?, Outcome::Committed);
    let tree = scoop.find(trip.id()).await?.tree().await?;
    assert_eq!(tree.unhandled()[0].redelivered_as, Some(hierarchy));
    assert!(tree.to_string().contains(&format!("redelivered as hierarchy {hierarchy}")), "{tree}");
    assert_eq!(tree.runs().len(), 1);
    assert_eq!(self::redelivered(&scoop).await?, 0);
    scoop.shutdown().await?;
    let history = db.history().await;
    assert_eq!(history.about(&["M2"]).rows().len(), 4, "{history}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_message_goes_on_in_its_hierarchy() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Traveller::default(),)).await?;
    assert_eq!(scoop.launch(Trip::Detaches).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    let scoop = db.start((Reader,)).await?;
    let redelivered = scoop.operate().handlers().redeliver(Note::TOPIC).await?;
    assert_eq!(scoop.find(redelivered.hierarchies[0]).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    assert_eq!(db.history().await.count("EMITTED"), 2, "there is no copy");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_saga_that_was_undone_is_not_redelivered() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Traveller::default(),)).await?;
    assert!(matches!(scoop.launch(Trip::Fails).await?.ends().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    register(&db).await?;
    assert_eq!(redelivered(&db.client()).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_saga_that_has_to_give_up_is_not_redelivered() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let client = db.client();
    let scoop = db.start((Traveller { gate: gate.clone() },)).await?;
    let trip = scoop.launch(Trip::Waits).await?;
    gate.arrivals(1).await;
    scoop.cancel(trip.id(), "enough").await?;
    register(&db).await?;
    assert_eq!(redelivered(&client).await?, 0);
    gate.open(1);
    assert!(matches!(trip.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(redelivered(&client).await?, 0);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_compensation_is_redelivered() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Traveller::default(),)).await?;
    assert!(matches!(scoop.launch(Trip::Compensates).await?.ends().await?, Outcome::RolledBack(_)));
    scoop.shutdown().await?;
    let scoop = db.start((Reader,)).await?;
    let redelivered = scoop.operate().handlers().redeliver(Note::TOPIC).await?;
    assert_eq!(scoop.find(redelivered.hierarchies[0]).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    db.history().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_or_dropped_or_waiting_message_is_not_redelivered() -> Result<()> {
    let db = Database::new().await;
    db.start((Traveller::default(),)).await?.shutdown().await?;
    let client = db.client();
    let cancelled = client.launch(Note).await?;
    client.cancel(cancelled.id(), "enough").await?;
    register(&db).await?;
    let dropped = client.launch(Note).await?;
    client.operate().handlers().retire("redelivered.note", "redelivered-reader").drop_pending().await?;
    assert_eq!(dropped.ends().await?, Outcome::NoHandlers);
    register(&db).await?;
    client.launch(Note).await?;
    assert_eq!(redelivered(&client).await?, 0);
    assert_eq!(db.unfinished().await, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_redeliveries_take_each_message_once() -> Result<()> {
    let db = Database::new().await;
    db.start((Traveller::default(),)).await?.shutdown().await?;
    let client = db.client();
    let notes = client.launch_all((0..20).map(|_| Note)).await?;
    let scoop = db.start((Reader,)).await?;
    let calls = (0..6).map(|nth| if nth % 2 == 0 { &scoop } else { &client });
    let calls = calls.map(|scoop| scoop.operate().handlers().redeliver(Note::TOPIC).into_future());
    let mut taken = vec![];
    for call in futures_util::future::join_all(calls).await {
        taken.extend(call?.hierarchies);
    }
    let distinct: BTreeSet<_> = taken.iter().copied().collect();
    assert_eq!((taken.len(), distinct.len()), (20, 20));
    for note in notes {
        assert_eq!(note.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    assert_eq!(db.history().await.count("SEEN"), 20);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_and_time_bound_the_redelivery() -> Result<()> {
    let db = Database::new().await;
    db.start((Traveller::default(),)).await?.shutdown().await?;
    let client = db.client();
    client.launch_all((0..5).map(|_| Note)).await?;
    register(&db).await?;
    let later = db.time().await + Duration::from_millis(1);
    assert!(client.operate().handlers().redeliver(Note::TOPIC).since(later).await?.hierarchies.is_empty());
    let none = client.operate().handlers().redeliver(Note::TOPIC).limit(0).await?;
    assert!(none.hierarchies.is_empty() && none.more);
    let mut counts = vec![];
    loop {
        let redelivered = client.operate().handlers().redeliver(Note::TOPIC).limit(2).await?;
        counts.push(redelivered.hierarchies.len());
        if !redelivered.more {
            break;
        }
    }
    assert_eq!(counts.iter().sum::<usize>(), 5, "{counts:?}");
    assert!(counts.iter().all(|count| *count <= 2), "{counts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_without_handlers_is_an_error() -> Result<()> {
    let db = Database::new().await;
    register(&db).await?;
    let error = db
        .client()
        .operate()
        .handlers()
        .redeliver("redelivered.notes")
        .await
        .expect_err("no handler is subscribed");
    assert!(error.is_not_found(), "{error}");
    let expected = "no handler is subscribed to topic `redelivered.notes`, and `operate().handlers().redeliver` requires one; \
        did you mean `redelivered.note`?";
    assert!(error.to_string().starts_with(expected), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_registered_after_a_redelivery_gets_nothing() -> Result<()> {
    let db = Database::new().await;
    db.start((Traveller::default(),)).await?.shutdown().await?;
    let client = db.client();
    client.launch(Note).await?;
    register(&db).await?;
    assert_eq!(redelivered(&client).await?, 1);
    db.start((SecondReader,)).await?.shutdown().await?;
    assert_eq!(redelivered(&client).await?, 0);
    assert_eq!(db.unfinished().await, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn redelivered_messages_of_launches_and_steps_are_executed() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Traveller::default(),)).await?;
    scoop.launch(Trip::Launches).await?.ends().await?;
    scoop.shutdown().await?;
    let client = db.client();
    let note = client.launch(Note).delay(Duration::from_secs(1)).await?;
    register(&db).await?;
    let hierarchies = client.operate().handlers().redeliver(Note::TOPIC).await?.hierarchies;
    assert_eq!((hierarchies.len(), db.unfinished().await), (2, 2));
    let scoop = db.start((Reader,)).await?;
    for hierarchy in hierarchies {
        assert_eq!(scoop.find(hierarchy).await?.ends().await?, Outcome::Committed);
    }
    assert_eq!(note.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    db.history().await;
    Ok(())
}
