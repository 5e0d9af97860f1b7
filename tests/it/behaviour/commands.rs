//! Commands and entities: decisions, their order, failures, and what clients see.

use scoop::Decider;
use scoop::entities::CommandState;
use scoop::errors::NoResult;

use super::*;
use crate::support::{Database, Notes, eventually, warnings};

/// Nothing is found by polling within a test.
const NEVER: std::time::Duration = std::time::Duration::from_secs(3_600);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Shelf {
    units: i64,
    /// The units of each event, in their order.
    history: Vec<i64>,
}

#[entity(name = "shelf", key = u32)]
impl Shelf {
    fn delivered(&mut self, event: &Delivered) {
        self.change(event.units);
    }

    fn reserved(&mut self, event: &Reserved) {
        self.change(-event.units);
        assert_ne!(event.units, POISON, "this shelf cannot take so many");
    }
}

impl Shelf {
    fn change(&mut self, units: i64) {
        self.units += units;
        self.history.push(units);
    }
}

/// A number of units that makes the application of its event panic, halfway.
const POISON: i64 = 13;

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "shelf.delivered")]
struct Delivered {
    units: i64,
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "shelf.reserved")]
struct Reserved {
    shelf: u32,
    units: i64,
}

#[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[message(topic = "shelf.refused")]
struct Refused {
    shelf: u32,
    missing: i64,
}

#[derive(Serialize, Deserialize)]
struct Deliver {
    shelf: u32,
    units: i64,
}

#[command(entity = Shelf)]
impl Deliver {
    fn key(&self) -> u32 {
        self.shelf
    }

    fn decide(&self, _: &Shelf) -> Decision<Delivered, ()> {
        match self.units {
            0 => panic!("nothing is delivered"),
            units if units < 0 => Decision::Rejected(()),
            units => Decision::Accepted(Delivered { units }),
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Reserve {
    shelf: u32,
    units: i64,
}

#[command(entity = Shelf, topic = "reserve")]
impl Reserve {
    fn key(&self) -> u32 {
        self.shelf
    }

    fn decide(&self, shelf: &Shelf) -> Decision<Reserved, Refused> {
        let Self { shelf: key, units } = *self;
        match units <= shelf.units {
            true => Decision::Accepted(Reserved { shelf: key, units }),
            false => Decision::Rejected(Refused { shelf: key, missing: units - shelf.units }),
        }
    }
}

handler! {
    Packing { notes: Notes }: "packing" on Reserved;

    #[step(name = "pack")]
    async fn pack(&self, _: &mut Scope<'_>, reserved: &Reserved) -> Result<()> {
        self.notes.add(format!("pack {}", reserved.units));
        Ok(())
    }
}

handler! {
    Buying { notes: Notes }: "buying" on Refused;

    #[step(name = "buy")]
    async fn buy(&self, _: &mut Scope<'_>, refused: &Refused) -> Result<()> {
        self.notes.add(format!("buy {}", refused.missing));
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "commands.unheard")]
struct Unheard;

/// A program with the commands, and these notes of the sagas that handle their events.
pub(super) async fn start(db: &Database, notes: &Notes) -> Result<Scoop> {
    let builder = db.scoop().only::<Decider<Deliver>>().only::<Decider<Reserve>>();
    let builder = builder.only::<Packing>().provide(Packing { notes: notes.clone() });
    let builder = builder.only::<Buying>().provide(Buying { notes: notes.clone() });
    Ok(builder.poll_interval(NEVER).start().await?)
}

pub(super) async fn deliver(scoop: &Scoop, shelf: u32, units: i64) -> Result<()> {
    let decision = scoop.send(Deliver { shelf, units }).await?.decision().await?;
    assert_eq!(decision, Decision::Accepted(Delivered { units }));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn command_is_decided_against_the_state_that_its_event_changes() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let before = scoop.entity::<Shelf>(7).await?;
    assert_eq!((before.version, before.state), (0, Shelf::default()));
    deliver(&scoop, 7, 8).await?;

    let six = scoop.send(Reserve { shelf: 7, units: 6 }).await?;
    assert_eq!(six.decision().await?, Decision::Accepted(Reserved { shelf: 7, units: 6 }));
    assert_eq!(six.wait().await?, Outcome::Committed);
    let five = scoop.send(Reserve { shelf: 7, units: 5 }).await?;
    assert_eq!(five.decision().await?, Decision::Rejected(Refused { shelf: 7, missing: 3 }));
    assert_eq!(five.wait().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["pack 6", "buy 3"], "both are messages");

    assert_eq!(scoop.find(six.id()).await?.command_state().await?, Some(CommandState::Accepted));
    assert_eq!(scoop.find(five.id()).await?.command_state().await?, Some(CommandState::Rejected));
    assert_eq!(six.replies::<Reserve>().await?.len(), 1, "the decision is the reply of the command");
    let after = scoop.entity::<Shelf>(7).await?;
    assert_eq!((after.version, after.state.units), (2, 2));
    assert_eq!(scoop.entity::<Shelf>(8).await?.version, 0, "another key is another entity");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_without_an_event_ends_the_command_at_once() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let sent = scoop.send(Deliver { shelf: 1, units: -1 }).await?;
    assert_eq!(sent.decision().await?, Decision::Rejected(()));
    assert_eq!(sent.wait().await?, Outcome::Committed, "a rejection is no failure");
    assert_eq!(scoop.entity::<Shelf>(1).await?.version, 0);
    db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN deliver ·
        M0 SUSPENDED deliver decide
        M0 COMMITTED deliver decide",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commands_never_take_more_than_there_is() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let (one, other) = (start(&db, &notes).await?, start(&db, &notes).await?);
    deliver(&one, 3, 100).await?;
    let senders = (0..16).map(|sender| {
        let scoop = if sender % 2 == 0 { one.clone() } else { other.clone() };
        tokio::spawn(async move {
            let mut accepted = 0;
            for units in 1..=5 {
                let sent = scoop.send(Reserve { shelf: 3, units }).await?;
                if let Decision::Accepted(reserved) = sent.decision().await? {
                    assert_eq!(reserved.units, units);
                    accepted += 1;
                }
            }
            Ok::<_, Error>(accepted)
        })
    });
    let mut accepted = 0;
    for sender in senders.collect::<Vec<_>>() {
        accepted += sender.await.expect("it does not panic")?;
    }
    let shelf = one.entity::<Shelf>(3).await?;
    assert_eq!(shelf.version, 1 + accepted, "one version for each accepted command");
    assert_eq!(shelf.state.history.len() as u64, shelf.version);
    assert!(
        (0..5).contains(&shelf.state.units),
        "240 units were asked for, and {} are left",
        shelf.state.units
    );
    assert_eq!(shelf.state.history.iter().sum::<i64>(), shelf.state.units);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_of_a_decision_fails_its_command_with_its_place_and_changes_nothing() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    deliver(&scoop, 1, 20).await?;
    let sent = scoop.send(Deliver { shelf: 1, units: 0 }).await?;
    let Err(error) = sent.decision().await else { panic!("it has no decision") };
    let Some(NoResult::RolledBack(failure)) = error.no_result() else { panic!("{error}") };
    let run = sent.tree().await?.runs()[0].lineage.id();
    assert_eq!(
        failure.message,
        format!(
            "panic in `decide` of saga `deliver` about the entity `shelf` (key `1`) in run {run}: nothing is delivered; \
             nothing has changed: correct the code, then send the command again"
        )
    );
    let place = failure.stack_trace.first().expect("it has a place");
    assert!(place.file_name.ends_with("commands.rs"), "{place:?}");
    assert_eq!(scoop.find(sent.id()).await?.command_state().await?, None);
    assert_eq!(scoop.entity::<Shelf>(1).await?.version, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_of_an_application_spares_the_other_commands_of_the_entity() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    deliver(&scoop, 1, 100).await?;
    let units = [1, POISON, 2, POISON, 3];
    let sent = scoop.launch_all(units.map(|units| Reserve { shelf: 1, units })).await?;
    for (units, sent) in units.into_iter().zip(&sent) {
        match (sent.ends().await?, units) {
            (Outcome::RolledBack(failure), POISON) => {
                let run = sent.tree().await?.runs()[0].lineage.id();
                let text = format!(
                    "panic in the application of an event of saga `reserve` to the entity `shelf` (key `1`) in run {run}: "
                );
                assert!(failure.message.starts_with(&text), "{failure}");
                assert!(failure.message.contains("this shelf cannot take so many"), "{failure}");
                assert!(
                    failure.message.ends_with("correct the code, then send the command again"),
                    "{failure}"
                );
            }
            (outcome, _) => assert_eq!(outcome, Outcome::Committed),
        }
    }
    let shelf = scoop.entity::<Shelf>(1).await?;
    assert_eq!((shelf.version, shelf.state.units), (4, 94), "a change that panicked halfway is undone");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_command_is_not_decided_and_the_others_of_its_batch_are() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    deliver(&scoop, 1, 10).await?;
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    let late = scoop.send(Reserve { shelf: 1, units: 1 }).deadline(past).await?;
    let in_time = scoop.send(Reserve { shelf: 1, units: 2 }).await?;
    assert!(matches!(late.wait().await?, Outcome::RolledBack(_)));
    assert!(in_time.decision().await?.is_accepted());
    let shelf = scoop.entity::<Shelf>(1).await?;
    assert_eq!((shelf.version, shelf.state.units), (2, 8));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_cannot_be_stored_fails_the_command() -> Result<()> {
    #[derive(Debug, Default, Serialize, Deserialize)]
    struct Named(u32);

    #[derive(Message, Serialize, Deserialize)]
    struct Renamed;

    #[entity(name = "named", key = String)]
    impl Named {
        fn renamed(&mut self, _: &Renamed) {
            self.0 += 1;
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Rename(String);

    #[command(entity = Named)]
    impl Rename {
        fn key(&self) -> String {
            self.0.clone()
        }

        fn decide(&self, _: &Named) -> Decision<Renamed> {
            Decision::Accepted(Renamed)
        }
    }

    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<Rename>>().start().await?;
    assert!(scoop.send(Rename("x".repeat(255))).await?.decision().await?.is_accepted());
    let Outcome::RolledBack(failure) = scoop.send(Rename("x".repeat(256))).await?.wait().await? else {
        panic!("the key is too long")
    };
    assert!(failure.message.contains("the key of the entity `named` has 256 bytes"), "{failure}");
    let error = scoop.entity::<Named>(String::new()).await.expect_err("the key is empty");
    assert!(error.to_string().contains("0 bytes"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_no_program_has_handled_has_no_decision() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<Deliver>>().start().await?;
    let sent = scoop.send(Reserve { shelf: 1, units: 1 }).await?;
    let error = sent.decision().await.expect_err("no program has this command");
    assert!(matches!(error.no_result(), Some(NoResult::NoHandlers)), "{error}");
    let text = error.to_string();
    assert!(text.contains("on topic `reserve` has no result: no saga was subscribed"), "{text}");
    assert!(
        text.contains("then launch it again, or have it redelivered by `operate().handlers().redeliver`"),
        "{text}"
    );
    assert_eq!(scoop.find(sent.id()).await?.command_state().await?, None);
    let required = scoop.send(Reserve { shelf: 1, units: 1 }).required().await;
    assert!(required.is_err_and(|error| error.is_no_handler()));
    scoop.shutdown().await?;
    if Database::IN_MEMORY {
        return Ok(());
    }
    let scoop = start(&db, &Notes::default()).await?;
    assert_eq!(scoop.operate().handlers().redeliver(Reserve::TOPIC).await?.hierarchies.len(), 1);
    let sent = scoop.find(sent.id()).await?;
    assert!(sent.decision::<Reserve>().await?.rejected().is_some(), "the shelf is empty");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_of_another_message_is_refused_with_the_topic_of_that() -> Result<()> {
    let db = Database::new().await;
    let scoop = start(&db, &Notes::default()).await?;
    let event = scoop.launch(Reserved { shelf: 1, units: 1 }).await?;
    let error = event.decision::<Reserve>().await.expect_err("it is no command");
    let text = error.to_string();
    assert!(
        text.contains(
            " is on topic `shelf.reserved`, but its replies were requested for a message on topic `reserve`;"
        ),
        "{text}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn event_of_a_command_without_a_handler_is_no_warning() -> Result<()> {
    // The first look begins to listen.
    assert_eq!(warnings("topic=\"shelf.delivered\""), [""; 0]);
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<Deliver>>().start().await?;
    scoop.send(Deliver { shelf: 1, units: 1 }).await?.decision().await?;
    scoop.launch(Unheard).await?.ends().await?;
    eventually("the warning about a message", async || !warnings("topic=\"commands.unheard\"").is_empty())
        .await;
    assert_eq!(warnings("topic=\"shelf.delivered\""), [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn command_whose_program_has_ended_waits_for_the_next_one() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    start(&db, &notes).await?.shutdown().await?;
    let other = db.scoop().only::<Decider<Deliver>>().start().await?;
    deliver(&other, 1, 5).await?;
    let sent = other.send(Reserve { shelf: 1, units: 2 }).await?;
    assert_eq!(other.find(sent.id()).await?.command_state().await?, None);
    let _again = start(&db, &notes).await?;
    assert!(sent.decision().await?.is_accepted());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn event_that_makes_the_state_too_large_fails_its_command_and_says_what_to_do() -> Result<()> {
    let db = Database::new().await;
    let scoop = db
        .scoop()
        .only::<Decider<Deliver>>()
        .limits(scoop::Limits::default().payload_bytes_max(100))
        .start()
        .await?;
    let large = |shelf| Deliver { shelf, units: 1_000_000_000_000 };
    // Four of them fit.
    let sent = scoop.launch_all((0..6).map(|_| large(1)).chain([large(2)])).await?;
    let mut accepted = 0;
    for handle in &sent[..6] {
        let failure = match handle.wait().await? {
            Outcome::Committed => {
                accepted += 1;
                continue;
            }
            Outcome::RolledBack(failure) => failure,
            other => panic!("{other:?}"),
        };
        for text in [
            "the state of the entity `shelf` (key `1`) after an event of saga `deliver` in run ",
            "more than the 100 allowed",
            "raise `payload_bytes_max`; nothing has changed",
            "then send the command again",
        ] {
            assert!(failure.message.contains(text), "{failure}");
        }
    }
    let shelf = scoop.entity::<Shelf>(1).await?;
    assert_eq!((accepted, shelf.version, shelf.state.history.len()), (4, 4, 4));
    assert!(sent[6].decision::<Deliver>().await?.is_accepted(), "another entity has room");
    Ok(())
}
