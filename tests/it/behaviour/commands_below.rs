//! Commands as children of sagas: their replies, their rollback, and information from outside.

use scoop::Decider;
use uuid::Uuid;

use super::*;
use crate::support::{Database, Notes};

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Till {
    cents: i64,
}

#[entity(name = "till", key = String)]
impl Till {
    fn paid(&mut self, event: &Paid) {
        self.cents += event.cents;
    }

    fn paid_back(&mut self, event: &PaidBack) {
        self.cents -= event.cents;
    }
}

#[derive(Message, Debug, PartialEq, Serialize, Deserialize)]
struct Paid {
    cents: i64,
}

#[derive(Message, Debug, PartialEq, Serialize, Deserialize)]
struct PaidBack {
    cents: i64,
}

#[derive(Serialize, Deserialize)]
struct Pay {
    till: String,
    units: i64,
}

#[command(entity = Till, name = "pay")]
impl Pay {
    fn key(&self) -> String {
        self.till.clone()
    }

    #[step(timeout = "5s", retry(max = 3, backoff = "1ms..2ms"))]
    async fn fetch(&self, scope: &mut Scope<'_>) -> Result<i64> {
        // The price comes from outside, at the second attempt.
        if scope.attempt() == 0 { Err(SIMULATED.into()) } else { Ok(100) }
    }

    fn decide(&self, _: &Till, price: &i64) -> Decision<Paid, ()> {
        match self.units {
            0 => Decision::Rejected(()),
            units => Decision::Accepted(Paid { cents: units * price }),
        }
    }

    fn undo(&self, _: &Till, paid: &Paid) -> Option<PaidBack> {
        assert_ne!(paid.cents, 900, "this cannot be undone");
        (paid.cents != 700).then_some(PaidBack { cents: paid.cents })
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "carts")]
struct Cart {
    units: i64,
    fails: bool,
}

handler! {
    Checkout { notes: Notes }: "checkout" on Cart;

    #[step(name = "pay")]
    async fn pay(&self, scope: &mut Scope<'_>, cart: &Cart) -> Result<()> {
        scope.launch(Pay { till: "front".into(), units: cart.units }).await?;
        Ok(())
    }

    #[step(name = "ship")]
    async fn ship(&self, scope: &mut Scope<'_>, cart: &Cart) -> Result<()> {
        for reply in scope.replies::<Pay>().await? {
            self.notes.add(format!("{:?}", reply.value));
        }
        if cart.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

handler! {
    Booking { notes: Notes }: "booking" on Paid;

    #[step(name = "book", rollback = unbook)]
    async fn book(&self, _: &mut Scope<'_>, paid: &Paid) -> Result<()> {
        self.notes.add(format!("book {}", paid.cents));
        Ok(())
    }

    async fn unbook(&self, _: &mut Scope<'_>, paid: &Paid, _: &Failure) -> Result<()> {
        self.notes.add(format!("unbook {}", paid.cents));
        Ok(())
    }
}

handler! {
    Refunding { notes: Notes }: "refunding" on PaidBack;

    #[step(name = "refund")]
    async fn refund(&self, _: &mut Scope<'_>, back: &PaidBack) -> Result<()> {
        self.notes.add(format!("refund {}", back.cents));
        Ok(())
    }
}

async fn start(db: &Database, notes: &Notes) -> Result<Scoop> {
    let builder = db.scoop().only::<Decider<Pay>>();
    let builder = builder.only::<Checkout>().provide(Checkout { notes: notes.clone() });
    let builder = builder.only::<Booking>().provide(Booking { notes: notes.clone() });
    let builder = builder.only::<Refunding>().provide(Refunding { notes: notes.clone() });
    Ok(builder.start().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn next_step_reads_the_decision_after_the_handlers_of_its_event() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    assert_eq!(scoop.launch(Cart { units: 2, fails: false }).await?.ends().await?, Outcome::Committed);
    assert_eq!(scoop.launch(Cart { units: 0, fails: false }).await?.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["book 200", "Accepted(Paid { cents: 200 })", "Rejected(())"]);
    let till = scoop.entity::<Till>("front".into()).await?;
    assert_eq!((till.version, till.state.cents), (1, 200));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_of_the_parent_undoes_an_accepted_command() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let outcome = scoop.launch(Cart { units: 2, fails: true }).await?.ends().await?;
    assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
    let expected = ["book 200", "Accepted(Paid { cents: 200 })", "unbook 200", "refund 200"];
    assert_eq!(notes.all(), expected, "the event is undone after its handlers");
    let till = scoop.entity::<Till>("front".into()).await?;
    assert_eq!((till.version, till.state.cents), (2, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_changes_nothing_if_there_is_nothing_to_undo() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    for units in [0, 7] {
        let outcome = scoop.launch(Cart { units, fails: true }).await?.ends().await?;
        assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
    }
    let till = scoop.entity::<Till>("front".into()).await?;
    assert_eq!(
        (till.version, till.state.cents),
        (1, 700),
        "a rejection has no event, and `undo` needs none for 700"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_of_undo_is_the_failure_of_the_rollback() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let outcome = scoop.launch(Cart { units: 9, fails: true }).await?.ends().await?;
    let Outcome::RollbackFailed(failed) = outcome else { panic!("it cannot be undone: {outcome:?}") };
    let report = failed.report();
    let text = "panic in `undo` of saga `pay` about the entity `till` (key `front`) in run ";
    assert!(
        report.contains(text) && report.contains("correct the code, then retry the rollback"),
        "{report}"
    );
    let till = scoop.entity::<Till>("front".into()).await?;
    assert_eq!((till.version, till.state.cents), (1, 900), "nothing has changed");
    Ok(())
}

/// The ids of the commands that were decided.
#[derive(Default, Serialize, Deserialize)]
struct Stamps(Vec<Uuid>);

#[entity(name = "stamps", key = u8)]
impl Stamps {
    fn stamped(&mut self, event: &Stamped) {
        self.0.push(event.command);
    }
}

#[derive(Message, Serialize, Deserialize)]
struct Stamped {
    command: Uuid,
}

#[derive(Serialize, Deserialize)]
struct Stamp;

#[command(entity = Stamps)]
impl Stamp {
    fn key(&self) -> u8 {
        1
    }

    fn decide(&self, _: &Stamps, id: Uuid) -> Decision<Stamped> {
        Decision::Accepted(Stamped { command: id })
    }
}

#[derive(Message, Serialize, Deserialize)]
struct Letter;

handler! {
    Post { notes: Notes }: "post" on Letter;

    #[step(name = "stamp")]
    async fn stamp(&self, scope: &mut Scope<'_>, _: &Letter) -> Result<()> {
        self.notes.add(scope.launch(Stamp).await?.to_string());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_gets_the_id_of_the_message_from_a_step_and_of_the_hierarchy_from_outside() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let builder = db.scoop().only::<Decider<Stamp>>();
    let scoop = builder.only::<Post>().provide(Post { notes: notes.clone() }).start().await?;
    assert_eq!(scoop.launch(Letter).await?.ends().await?, Outcome::Committed);
    let sent = scoop.send(Stamp).await?;
    assert!(sent.decision().await?.is_accepted());
    let stamps = scoop.entity::<Stamps>(1).await?.state.0;
    let stamps: Vec<_> = stamps.iter().map(Uuid::to_string).collect();
    assert_eq!(stamps, [notes.all(), vec![sent.id().to_string()]].concat());
    Ok(())
}
