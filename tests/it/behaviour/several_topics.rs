//! Sagas of several messages: values, replies, failures, and programs that gain, lose or rename topics.

use std::collections::BTreeSet;

use super::*;
use crate::support::{Database, Notes};

#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "orders.placed", reply = u32)]
struct OrderPlaced {
    order: u32,
    fails: bool,
}

/// Its payload is one of `OrderPlaced`, too.
#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "orders.changed", replies = String)]
struct OrderChanged {
    order: u32,
    fails: bool,
}

#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "orders.withdrawn")]
struct OrderWithdrawn(u32);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Shopping {
    fails: bool,
}

#[derive(Clone)]
struct Checkout {
    notes: Notes,
}

#[saga(name = "checkout")]
#[subscribes(any(OrderPlaced, OrderChanged, OrderWithdrawn))]
impl Checkout {
    #[step(rollback = release, on_child_failure = accept)]
    async fn reserve(&self, scope: &mut Scope<'_>, of: &CheckoutMessage) -> Result<String> {
        match of {
            CheckoutMessage::OrderPlaced(order) => {
                scope.reply(order, order.order)?;
                Ok(format!("placed {}", order.order))
            }
            CheckoutMessage::OrderChanged(change) => {
                scope.reply(change, "changed".into())?;
                scope.reply(change, "again".into())?;
                if change.fails {
                    scope.launch(OrderWithdrawn(0)).await?;
                }
                Ok(format!("changed {}", change.order))
            }
            CheckoutMessage::OrderWithdrawn(OrderWithdrawn(0)) => Err(SIMULATED.into()),
            CheckoutMessage::OrderWithdrawn(OrderWithdrawn(order)) => {
                // The run has a message of another type.
                scope.reply(&OrderPlaced { order: *order, fails: false }, *order)?;
                Ok("replied".into())
            }
        }
    }

    async fn accept(
        &self,
        _: &mut Scope<'_>,
        of: &CheckoutMessage,
        reserved: &String,
        _: &Failure,
    ) -> Result<()> {
        assert!(matches!(of, CheckoutMessage::OrderChanged(_)));
        self.notes.add(format!("accepted after {reserved}"));
        Ok(())
    }

    #[step]
    async fn ship(&self, _: &mut Scope<'_>, of: &CheckoutMessage, reserved: &String) -> Result<()> {
        self.notes.add(format!("shipped {reserved}"));
        match of {
            CheckoutMessage::OrderPlaced(OrderPlaced { fails: true, .. }) => Err(SIMULATED.into()),
            _ => Ok(()),
        }
    }

    async fn release(
        &self,
        _: &mut Scope<'_>,
        of: &CheckoutMessage,
        reserved: &String,
        _: &Failure,
    ) -> Result<()> {
        assert!(matches!(of, CheckoutMessage::OrderPlaced(_)));
        self.notes.add(format!("released {reserved}"));
        Ok(())
    }
}

struct Shop {
    notes: Notes,
}

#[saga(name = "shop")]
#[subscribes(Shopping)]
impl Shop {
    #[step]
    async fn order(&self, scope: &mut Scope<'_>, of: &Shopping) -> Result<()> {
        scope.launch(OrderPlaced { order: 1, fails: of.fails }).await?;
        scope.launch(OrderChanged { order: 2, fails: false }).await?;
        Ok(())
    }

    #[step]
    async fn read(&self, scope: &mut Scope<'_>, _: &Shopping) -> Result<()> {
        let placed = scope.replies::<OrderPlaced>().await?;
        let changed = scope.replies::<OrderChanged>().await?;
        let changed: Vec<_> = changed.into_iter().map(|reply| reply.value).collect();
        self.notes.add(format!("{} {changed:?}", placed[0].value));
        Ok(())
    }
}

async fn start(db: &Database, notes: &Notes) -> Result<Scoop> {
    Ok(db.start((Checkout { notes: notes.clone() }, Shop { notes: notes.clone() })).await?)
}

/// The topics that the handlers of this name are subscribed to. In memory they are not listed.
async fn are_topics(scoop: &Scoop, handler: &str, topics: &[&str]) -> Result<bool> {
    if Database::IN_MEMORY {
        return Ok(true);
    }
    let listed =
        scoop.operate().handlers().list().await?.into_iter().filter(|listed| listed.handler == handler);
    Ok(listed.map(|listed| listed.topic).eq(topics.iter().copied()))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_several_is_decoded_by_its_topic_and_gets_its_replies() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    assert!(are_topics(&scoop, "checkout", &["orders.changed", "orders.placed", "orders.withdrawn"]).await?);
    let root = scoop.launch(Shopping { fails: false }).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    let shipped: BTreeSet<_> = notes.all().into_iter().collect();
    let expected = ["1 [\"changed\", \"again\"]", "shipped changed 2", "shipped placed 1"];
    assert_eq!(shipped, expected.map(str::to_owned).into());
    let tree = root.tree().await?.to_string();
    assert!(
        tree.contains("checkout (on orders.placed)") && tree.contains("checkout (on orders.changed)"),
        "{tree}"
    );
    assert_eq!(scoop.launch(OrderPlaced { order: 9, fails: false }).result().await?, 9);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_and_compensations_get_the_message_of_their_run() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let placed = scoop.launch(OrderPlaced { order: 3, fails: true }).await?;
    assert!(matches!(placed.ends().await?, Outcome::RolledBack(_)));
    let changed = scoop.launch(OrderChanged { order: 4, fails: true }).await?;
    assert_eq!(changed.ends().await?, Outcome::Committed);
    let expected = ["shipped placed 3", "released placed 3", "accepted after changed 4", "shipped changed 4"];
    assert_eq!(notes.all(), expected);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reply_to_another_message_of_the_saga_fails_the_step() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let Outcome::RolledBack(failure) = scoop.launch(OrderWithdrawn(5)).await?.ends().await? else {
        panic!("the reply is of another run");
    };
    assert_eq!(failure.kind, "ReplyToOtherMessage");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_topic_of_a_saga_leaves_its_other_topics() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    assert!(scoop.operate().handlers().retire("orders.changed", "checkout").await?.was_registered);
    assert!(are_topics(&scoop, "checkout", &["orders.placed", "orders.withdrawn"]).await?);
    let changed = scoop.launch(OrderChanged { order: 4, fails: false }).await?;
    assert_eq!(changed.ends().await?, Outcome::NoHandlers);
    let placed = scoop.launch(OrderPlaced { order: 3, fails: false }).await?;
    assert_eq!(placed.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    // The next start registers the topic again, and the message is delivered then.
    let scoop = start(&db, &notes).await?;
    assert_eq!(scoop.operate().handlers().redeliver(OrderChanged::TOPIC).await?.hierarchies.len(), 1);
    assert_eq!(changed.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["shipped placed 3", "shipped changed 4"]);
    scoop.shutdown().await?;
    Ok(())
}

/// Versions of a saga with other topics, or another name.
mod versions {
    use super::*;

    pub(super) struct One {
        pub(super) notes: Notes,
    }

    #[saga(name = "stock")]
    #[subscribes(OrderPlaced)]
    impl One {
        #[step]
        async fn note(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
            self.notes.add("One");
            Ok(())
        }
    }

    pub(super) struct Two {
        pub(super) notes: Notes,
    }

    #[saga(name = "stock")]
    #[subscribes(any(OrderPlaced, OrderChanged))]
    impl Two {
        #[step]
        async fn note(&self, _: &mut Scope<'_>, _: &TwoMessage) -> Result<()> {
            self.notes.add("Two");
            Ok(())
        }
    }

    pub(super) struct Renamed {
        pub(super) notes: Notes,
    }

    #[saga(name = "stores", was = ["store", "stock"])]
    #[subscribes(any(OrderPlaced, OrderChanged))]
    impl Renamed {
        #[step]
        async fn note(&self, _: &mut Scope<'_>, _: &RenamedMessage) -> Result<()> {
            self.notes.add("Renamed");
            Ok(())
        }
    }
}

use versions::{One, Renamed, Two};

fn placed() -> OrderPlaced {
    OrderPlaced { order: 1, fails: false }
}

fn changed() -> OrderChanged {
    OrderChanged { order: 2, fails: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_lost_topic_wait_for_a_program_that_has_it() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    db.start((Two { notes: notes.clone() },)).await?.shutdown().await?;
    let one = db.start((One { notes: notes.clone() },)).await?;
    let left = one.launch(changed()).await?;
    assert_eq!(one.launch(placed()).await?.ends().await?, Outcome::Committed);
    assert_eq!(left.tree().await?.roots()[0].state, RunState::Pending);
    assert_eq!(one.operate().failures().stuck().await?.len(), 1, "no living program has the topic");
    let two = db.start((Two { notes: notes.clone() },)).await?;
    assert_eq!(left.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["One", "Two"]);
    for scoop in [one, two] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn program_with_an_older_definition_keeps_the_topic_that_only_it_has() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let two = db.start((Two { notes: notes.clone() },)).await?;
    let one = db.start((One { notes: notes.clone() },)).await?;
    for _ in 0..8 {
        assert_eq!(two.launch(changed()).await?.ends().await?, Outcome::Committed);
        assert_eq!(two.launch(placed()).await?.ends().await?, Outcome::Committed);
    }
    assert_eq!(notes.all(), ["Two", "One"].repeat(8), "the one that started last has the other topic");
    for scoop in [one, two] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_saga_takes_over_all_of_its_topics() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    db.start((Two { notes: notes.clone() },)).await?.shutdown().await?;
    let client = db.client();
    let left = [client.launch(changed()).await?, client.launch(placed()).await?];
    let renamed = db.start((Renamed { notes: notes.clone() },)).await?;
    for root in left {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    assert!(are_topics(&renamed, "stores", &["orders.changed", "orders.placed"]).await?);
    assert!(are_topics(&renamed, "stock", &[]).await?);
    // The older program takes both topics back, so that each message is delivered once.
    let two = db.start((Two { notes: notes.clone() },)).await?;
    assert!(are_topics(&two, "stock", &["orders.changed", "orders.placed"]).await?);
    assert!(are_topics(&two, "stores", &[]).await?);
    renamed.shutdown().await?;
    for root in [two.launch(changed()).await?, two.launch(placed()).await?] {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    assert_eq!(notes.all(), ["Renamed", "Renamed", "Two", "Two"]);
    two.shutdown().await?;
    Ok(())
}
