//! A step that runs at most once takes what its program cannot decode: the values of steps and signals are decoded before
//! it begins.

use std::time::Duration;

use scoop::{Handle, Interrupted};

use super::*;
use crate::support::{Database, Notes};

#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "orders")]
struct Order {
    number: i64,
}

/// A version of the saga, which notes its steps.
trait Version: Saga {
    fn new(notes: &Notes) -> Self;
}

/// Declares versions whose values, signals and replies have these types.
macro_rules! versions {
    ($($version:ident($type:ty, $value:expr);)*) => {$(
        mod $version {
            use super::*;

            #[derive(Debug, Serialize, Deserialize)]
            pub(super) struct Paid {
                pub(super) amount: $type,
            }

            // By hand: a program with two derived signals of one name does not start.
            impl Signal for Paid {
                const NAME: &'static str = "orders.paid";
                const RETENTION: Duration = Duration::from_secs(3600);
            }

            #[derive(Message, Serialize, Deserialize)]
            #[message(topic = "prices", reply = $type)]
            pub(super) struct Ask;

            /// Its second step takes the value of the first one.
            pub(super) struct Shop(Notes);

            #[saga(name = "shop")]
            #[subscribes(Order)]
            impl Shop {
                #[step]
                async fn price(&self, scope: &mut Scope<'_>, _: &Order) -> Result<$type> {
                    scope.launch(Child).await?;
                    Ok($value)
                }

                #[step(delivery = "at_most_once")]
                async fn charge(&self, _: &mut Scope<'_>, _: &Order, price: &$type) -> Result<()> {
                    self.0.add(format!("charge {price:?}@{}", stringify!($version)));
                    Ok(())
                }
            }

            /// Its second step takes a signal.
            pub(super) struct Shipping(Notes);

            #[saga(name = "shipping")]
            #[subscribes(Order)]
            impl Shipping {
                #[step]
                async fn reserve(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
                    Ok(())
                }

                #[step(delivery = "at_most_once", awaits(Paid, by = number))]
                async fn ship(&self, _: &mut Scope<'_>, _: &Order, paid: &Paid) -> Result<()> {
                    self.0.add(format!("ship {:?}@{}", paid.amount, stringify!($version)));
                    Ok(())
                }

                async fn number(&self, _: &mut Scope<'_>, order: &Order) -> Result<String> {
                    Ok(order.number.to_string())
                }
            }

            /// Its second step reads a reply.
            pub(super) struct Buyer(Notes);

            #[saga(name = "buyer")]
            #[subscribes(Order)]
            impl Buyer {
                #[step]
                async fn ask(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
                    scope.launch(Ask).await?;
                    Ok(())
                }

                #[step(delivery = "at_most_once")]
                async fn pay(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
                    self.0.add("pay");
                    let replies = scope.replies::<Ask>().await?;
                    self.0.add(format!("{:?}@{}", replies[0].value, stringify!($version)));
                    Ok(())
                }
            }

            #[derive(Default)]
            pub(super) struct Seller;

            #[saga(name = "seller")]
            #[subscribes(Ask)]
            impl Seller {
                #[step]
                async fn quote(&self, scope: &mut Scope<'_>, ask: &Ask) -> Result<()> {
                    scope.reply(ask, $value)
                }
            }

            impl Version for Shop {
                fn new(notes: &Notes) -> Self {
                    Self(notes.clone())
                }
            }

            impl Version for Shipping {
                fn new(notes: &Notes) -> Self {
                    Self(notes.clone())
                }
            }

            impl Version for Buyer {
                fn new(notes: &Notes) -> Self {
                    Self(notes.clone())
                }
            }
        }
    )*};
}

versions! {
    cents(i64, 7);
    words(String, "seven".to_owned());
}

handler! {
    Clerk: "clerk" on Child;
    step "work" work => done();
}

async fn starts<S: Version>(db: &Database, notes: &Notes) -> Result<scoop::Scoop> {
    Ok(db.start((S::new(notes),)).await?)
}

/// A run under the older program that has come to its wait, beside a newer program that has started then.
async fn waiting<Old: Version, New: Version>(
    db: &Database,
    notes: &Notes,
    waits: impl Fn(&RunState) -> bool,
) -> Result<(scoop::Scoop, scoop::Scoop, Handle)> {
    let old = starts::<Old>(db, notes).await?;
    let root = old.launch(Order { number: 7 }).await?;
    root.comes_to(|tree| tree.roots().iter().any(|run| waits(&run.state))).await?;
    let new = starts::<New>(db, notes).await?;
    Ok((old, new, db.client().find(root.id()).await?))
}

#[tokio::test(flavor = "multi_thread")]
async fn step_with_a_value_that_the_newer_program_cannot_read_runs_in_the_older_one() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    db.start((Clerk,)).await?.shutdown().await?;
    let is_waiting = |state: &RunState| *state == RunState::Waiting;
    let (old, new, root) = waiting::<cents::Shop, words::Shop>(&db, &notes, is_waiting).await?;
    let clerk = db.start((Clerk,)).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["charge 7@cents"]);
    for scoop in [clerk, new, old] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn step_with_a_signal_that_the_newer_program_cannot_read_runs_in_the_older_one() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let is_waiting = |state: &RunState| *state == RunState::AwaitingSignal;
    let (old, new, root) = waiting::<cents::Shipping, words::Shipping>(&db, &notes, is_waiting).await?;
    db.client().signal(cents::Paid { amount: 7 }, "7").await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), ["ship 7@cents"]);
    for scoop in [new, old] {
        scoop.shutdown().await?;
    }
    Ok(())
}

/// Such a step is called at most once, so that no other program gets it: it fails for the reply, and is not interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn step_that_reads_a_reply_that_its_program_cannot_read_fails_for_that() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let seller = db.scoop().only::<cents::Seller>().start().await?;
    let buyer = starts::<words::Buyer>(&db, &notes).await?;
    let outcome = buyer.launch(Order { number: 7 }).await?.ends().await?;
    let Outcome::RolledBack(why) = outcome else { panic!("{outcome:?}") };
    assert!(why.find::<Interrupted>().is_none(), "{why}");
    assert!(why.to_string().contains("is no `alloc::string::String` of this program"), "{why}");
    assert_eq!(notes.all(), ["pay"]);
    for scoop in [seller, buyer] {
        scoop.shutdown().await?;
    }
    Ok(())
}
