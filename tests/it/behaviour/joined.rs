//! Sagas that join messages: complete and incomplete sets, duplicates, withdrawn members, restarts, and time limits.

use std::collections::BTreeSet;
use std::time::Duration;

use scoop::{Handle, JoinIncomplete};
use uuid::Uuid;

use super::*;
use crate::support::{Database, Gate, Notes, eventually};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "payments.captured")]
struct PaymentCaptured {
    order: String,
    cents: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "stock.picked")]
struct StockPicked {
    order: String,
    shelf: u32,
}

#[derive(Clone)]
struct Shipping {
    notes: Notes,
    fails: bool,
}

#[saga(name = "shipping")]
#[subscribes(join(PaymentCaptured, StockPicked, by = order))]
impl Shipping {
    #[step(rollback = recall)]
    async fn ship(&self, _: &mut Scope<'_>, of: &ShippingMessage) -> Result<String> {
        let ShippingMessage { payment_captured: paid, stock_picked: picked } = of;
        assert_eq!(paid.order, picked.order);
        let shipped = format!("{} for {} from {}", paid.order, paid.cents, picked.shelf);
        self.notes.add(&shipped);
        Ok(shipped)
    }

    #[step]
    async fn thank(&self, _: &mut Scope<'_>, _: &ShippingMessage, _: &String) -> Result<()> {
        if self.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }

    async fn recall(
        &self,
        _: &mut Scope<'_>,
        _: &ShippingMessage,
        shipped: &String,
        _: &Failure,
    ) -> Result<()> {
        self.notes.add(format!("recalled {shipped}"));
        Ok(())
    }
}

/// Captures a payment, and then fails if it is to.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Charge {
    order: String,
    fails: bool,
}

#[derive(Clone, Default)]
struct Cashier {
    gate: Gate,
}

#[saga(name = "cashier")]
#[subscribes(Charge)]
impl Cashier {
    #[step]
    async fn capture(&self, scope: &mut Scope<'_>, of: &Charge) -> Result<()> {
        scope.launch(PaymentCaptured { order: of.order.clone(), cents: 5 }).await?;
        Ok(())
    }

    #[step]
    async fn close(&self, _: &mut Scope<'_>, of: &Charge) -> Result<()> {
        if of.fails {
            self.gate.pass().await;
            return Err(SIMULATED.into());
        }
        Ok(())
    }
}

fn paid(order: &str, cents: u32) -> PaymentCaptured {
    PaymentCaptured { order: order.to_owned(), cents }
}

fn picked(order: &str, shelf: u32) -> StockPicked {
    StockPicked { order: order.to_owned(), shelf }
}

async fn start(db: &Database, notes: &Notes) -> Result<Scoop> {
    let shipping = Shipping { notes: notes.clone(), fails: false };
    Ok(db.scoop().only::<Shipping>().provide(shipping).poll_interval(NEVER).start().await?)
}

/// Launches a message, and waits until it is recorded.
async fn record<M: Message>(scoop: &Scoop, message: M) -> Result<Uuid> {
    let launched = scoop.launch(message).await?;
    assert_eq!(launched.ends().await?, Outcome::Committed);
    Ok(launched.message_id())
}

/// The hierarchy that joins a message.
async fn joined(scoop: &Scoop, message: Uuid) -> Result<Handle> {
    let ids = scoop.operate().runs().joined(message).await?;
    assert_eq!(ids.len(), 1, "it is joined once");
    Ok(scoop.find(ids[0]).await?)
}

/// The keys and topics of the messages that wait.
async fn waiting(scoop: &Scoop) -> Result<Vec<(String, String)>> {
    let waiting = scoop.operate().runs().waiting_members().await?;
    assert!(waiting.iter().all(|member| member.saga == "shipping"));
    Ok(waiting.into_iter().map(|member| (member.key, member.topic)).collect())
}

fn member(key: &str, topic: &str) -> (String, String) {
    (key.to_owned(), topic.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_waits_to_be_joined_is_listed_and_explained() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let payment = record(&scoop, paid("7", 990)).await?;
    assert_eq!(waiting(&scoop).await?, [member("7", "payments.captured")]);
    if !Database::IN_MEMORY {
        let run = scoop.operate().runs().explain(payment).await?.runs.remove(0);
        let text = run.to_string();
        assert!(
            text.contains("there are messages of payments.captured, and none of stock.picked."),
            "{text}"
        );
        let join = run.join.expect("it waits");
        assert_eq!(
            (join.present, join.missing),
            (vec!["payments.captured".into()], vec!["stock.picked".into()])
        );
        assert_eq!(join.until, None);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn complete_set_starts_one_hierarchy_with_all_of_its_messages() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let payment = record(&scoop, paid("7", 990)).await?;
    record(&scoop, picked("8", 1)).await?;
    assert!(scoop.operate().runs().joined(payment).await?.is_empty());
    assert_eq!(waiting(&scoop).await?, [member("7", "payments.captured"), member("8", "stock.picked")]);
    let stock = record(&scoop, picked("7", 3)).await?;
    let root = joined(&scoop, payment).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(joined(&scoop, stock).await?.id(), root.id());
    assert_eq!(notes.all(), ["7 for 990 from 3"]);
    assert_eq!(waiting(&scoop).await?, [member("8", "stock.picked")]);
    let tree = root.tree().await?.to_string();
    assert!(tree.starts_with("shipping (on joins.shipping): committed"), "{tree}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn second_message_under_one_key_goes_to_the_next_set() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    for cents in [1, 2, 3] {
        record(&scoop, paid("7", cents)).await?;
    }
    for shelf in [1, 2] {
        let stock = record(&scoop, picked("7", shelf)).await?;
        joined(&scoop, stock).await?.ends().await?;
    }
    assert_eq!(notes.all(), ["7 for 1 from 1", "7 for 2 from 2"]);
    assert_eq!(waiting(&scoop).await?, [member("7", "payments.captured")]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_whose_emitter_rolls_back_is_withdrawn() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let cashier = Cashier::default();
    let shipping = Shipping { notes: notes.clone(), fails: false };
    let scoop = db.start((shipping, cashier.clone())).await?;
    let charge = scoop.launch(Charge { order: "7".into(), fails: true }).await?;
    cashier.gate.arrivals(1).await;
    assert_eq!(waiting(&scoop).await?, [member("7", "payments.captured")]);
    cashier.gate.open(1);
    assert!(matches!(charge.ends().await?, Outcome::RolledBack(_)));
    assert!(waiting(&scoop).await?.is_empty());
    record(&scoop, picked("7", 1)).await?;
    assert_eq!(waiting(&scoop).await?, [member("7", "stock.picked")]);
    let payment = record(&scoop, paid("7", 8)).await?;
    assert_eq!(joined(&scoop, payment).await?.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["7 for 8 from 1"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_of_an_emitter_undoes_the_joined_hierarchy() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let cashier = Cashier::default();
    let shipping = Shipping { notes: notes.clone(), fails: false };
    let scoop = db.start((shipping, cashier.clone())).await?;
    let charge = scoop.launch(Charge { order: "7".into(), fails: true }).await?;
    cashier.gate.arrivals(1).await;
    let stock = record(&scoop, picked("7", 1)).await?;
    let root = joined(&scoop, stock).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    cashier.gate.open(1);
    assert!(matches!(charge.ends().await?, Outcome::RolledBack(_)));
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(notes.all(), ["7 for 5 from 1", "recalled 7 for 5 from 1"]);
    assert!(waiting(&scoop).await?.is_empty(), "a set is joined once");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_a_joined_saga_leaves_its_emitters_alone() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let shipping = Shipping { notes: notes.clone(), fails: true };
    let scoop = db.start((shipping, Cashier::default())).await?;
    let charge = scoop.launch(Charge { order: "7".into(), fails: false }).await?;
    assert_eq!(charge.ends().await?, Outcome::Committed);
    let stock = record(&scoop, picked("7", 1)).await?;
    assert!(matches!(joined(&scoop, stock).await?.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(charge.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["7 for 5 from 1", "recalled 7 for 5 from 1"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_starts_later_completes_a_set() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    record(&scoop, paid("7", 9)).await?;
    scoop.shutdown().await?;
    let later = db.client().launch(picked("7", 4)).await?;
    let scoop = start(&db, &notes).await?;
    assert_eq!(later.ends().await?, Outcome::Committed);
    assert_eq!(joined(&scoop, later.message_id()).await?.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["7 for 9 from 4"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn last_messages_at_once_in_two_programs_start_each_set_once() -> Result<()> {
    const KEYS: u32 = 24;
    let (db, notes) = (Database::new().await, Notes::default());
    let programs = [start(&db, &notes).await?, start(&db, &notes).await?];
    let mut launched = vec![];
    for key in 0..KEYS {
        let (one, other) = (&programs[0], &programs[1]);
        let key = key.to_string();
        let (payment, stock) = tokio::join!(async { one.launch(paid(&key, 1)).await }, async {
            other.launch(picked(&key, 1)).await
        });
        launched.push((payment?, stock?));
    }
    for (payment, stock) in launched {
        for root in [&payment, &stock] {
            assert_eq!(root.ends().await?, Outcome::Committed);
        }
        let root = joined(&programs[0], payment.message_id()).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        assert_eq!(joined(&programs[1], stock.message_id()).await?.id(), root.id());
    }
    let shipped: BTreeSet<_> = notes.all().into_iter().collect();
    assert_eq!((notes.all().len(), shipped.len()), (KEYS as usize, KEYS as usize));
    for scoop in programs {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_cannot_be_stored_fails_its_message() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    for key in [String::new(), "x".repeat(256)] {
        let Outcome::RolledBack(failure) = scoop.launch(paid(&key, 1)).await?.ends().await? else {
            panic!("there is no such key");
        };
        assert!(failure.message.contains("the key of the message"), "{}", failure.report());
    }
    record(&scoop, paid(&"ü".repeat(127), 1)).await?;
    scoop.shutdown().await?;
    Ok(())
}

mod limits {
    use super::*;

    struct Timed {
        notes: Notes,
    }

    #[saga(name = "timed")]
    #[subscribes(join(PaymentCaptured, StockPicked, by = order, within = "80ms"))]
    impl Timed {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &TimedMessage) -> Result<()> {
            self.notes.add("shipped");
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn set_that_is_incomplete_for_too_long_fails() -> Result<()> {
        let (db, notes) = (Database::new().await, Notes::default());
        let scoop = db.scoop().only::<Timed>().provide(Timed { notes: notes.clone() }).start().await?;
        let payment = record(&scoop, paid("7", 9)).await?;
        eventually("the time is over", async || {
            scoop.operate().runs().waiting_members().await.unwrap().is_empty()
        })
        .await;
        let Outcome::RolledBack(failure) = joined(&scoop, payment).await?.ends().await? else {
            panic!("it is incomplete");
        };
        let incomplete = failure.find::<JoinIncomplete>().expect("it is the cause");
        assert_eq!((&*incomplete.saga, &*incomplete.key), ("timed", "7"));
        assert_eq!(incomplete.missing, ["stock.picked"]);
        assert!(notes.all().is_empty());
        scoop.shutdown().await?;
        Ok(())
    }

    mod longer {
        use super::*;

        pub(super) struct Patient;

        #[saga(name = "timed")]
        #[subscribes(join(PaymentCaptured, StockPicked, by = order, within = "3 days"))]
        impl Patient {
            #[step]
            async fn ship(&self, _: &mut Scope<'_>, _: &PatientMessage) -> Result<()> {
                Ok(())
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn message_with_a_shorter_time_than_older_ones_expires_alone() -> Result<()> {
        let (db, notes) = (Database::new().await, Notes::default());
        let older = db.scoop().only::<longer::Patient>().provide(longer::Patient).start().await?;
        let mut olders = vec![];
        for cents in [1, 2, 3] {
            olders.push(record(&older, paid("7", cents)).await?);
        }
        older.shutdown().await?;
        let scoop = db.scoop().only::<Timed>().provide(Timed { notes: notes.clone() }).start().await?;
        let later = record(&scoop, paid("7", 4)).await?;
        eventually("its time is over", async || {
            !scoop.operate().runs().joined(later).await.unwrap().is_empty()
        })
        .await;
        let Outcome::RolledBack(failure) = joined(&scoop, later).await?.ends().await? else {
            panic!("it is incomplete");
        };
        assert_eq!(failure.find::<JoinIncomplete>().expect("it is the cause").missing, ["stock.picked"]);
        let waiting: Vec<_> =
            scoop.operate().runs().waiting_members().await?.iter().map(|member| member.message).collect();
        assert_eq!(waiting, olders);
        let stock = record(&scoop, picked("7", 1)).await?;
        assert_eq!(joined(&scoop, stock).await?.ends().await?, Outcome::Committed);
        assert_eq!(joined(&scoop, olders[0]).await?.id(), joined(&scoop, stock).await?.id());
        scoop.shutdown().await?;
        Ok(())
    }
}

mod renamed {
    use super::*;

    struct Dispatch {
        notes: Notes,
    }

    #[saga(name = "dispatch", was = "shipping")]
    #[subscribes(join(PaymentCaptured, StockPicked, by = order))]
    impl Dispatch {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, of: &DispatchMessage) -> Result<()> {
            self.notes.add(format!("dispatched {}", of.stock_picked.order));
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn renamed_saga_completes_sets_of_its_former_name() -> Result<()> {
        let (db, notes) = (Database::new().await, Notes::default());
        let scoop = start(&db, &notes).await?;
        record(&scoop, paid("7", 9)).await?;
        scoop.shutdown().await?;
        let scoop = db.start((Dispatch { notes: notes.clone() },)).await?;
        let stock = record(&scoop, picked("7", 4)).await?;
        assert_eq!(joined(&scoop, stock).await?.ends().await?, Outcome::Committed);
        assert_eq!(notes.all(), ["dispatched 7"]);
        scoop.shutdown().await?;
        Ok(())
    }
}
