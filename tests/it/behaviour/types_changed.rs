//! Programs with the same steps, but other types of messages, values and replies.

use scoop::Handle;

use super::*;
use crate::support::{Database, Notes};

#[derive(Default, Message, Serialize, Deserialize)]
#[message(topic = "orders")]
struct Order {
    number: i64,
}

/// The same message with a field that no older one has.
#[derive(Default, Message, Serialize, Deserialize)]
#[message(topic = "orders")]
struct DetailedOrder {
    number: i64,
    currency: String,
}

#[derive(Default, Serialize, Deserialize)]
struct Cents(i64);

#[derive(Default, Serialize, Deserialize)]
struct Amount {
    cents: i64,
}

/// A version of the saga, which notes its steps.
trait Version: Saga {
    fn new(notes: &Notes) -> Self;
}

macro_rules! versions {
    ($($version:ident($order:ident, $price:ident);)*) => {$(
        mod $version {
            use super::*;

            pub(super) struct Shop {
                notes: Notes,
            }

            impl Version for Shop {
                fn new(notes: &Notes) -> Self {
                    Self { notes: notes.clone() }
                }
            }

            #[saga(name = "shop")]
            #[subscribes($order)]
            impl Shop {
                #[step]
                async fn price(&self, scope: &mut Scope<'_>, _: &$order) -> Result<$price> {
                    self.notes.add(concat!("price@", stringify!($version)));
                    scope.launch(Child).await?;
                    Ok($price::default())
                }

                #[step]
                async fn charge(&self, _: &mut Scope<'_>, _: &$order, _: &$price) -> Result<()> {
                    self.notes.add(concat!("charge@", stringify!($version)));
                    Ok(())
                }
            }
        }
    )*};
}

versions! {
    original(Order, Cents);
    other_message(DetailedOrder, Cents);
    other_value(Order, Amount);
}

handler! {
    Clerk: "clerk" on Child;
    step "work" work => done();
}

async fn starts<S: Version>(db: &Database, notes: &Notes) -> Result<scoop::Scoop> {
    Ok(db.start((S::new(notes),)).await?)
}

/// How many runs are left. Programs that may take each other's share them by chance.
const RUNS: usize = 8;

/// The original program, and runs of it that wait for children that no program handles yet.
async fn waiting(db: &Database, notes: &Notes) -> Result<(scoop::Scoop, Vec<Handle>)> {
    db.start((Clerk,)).await?.shutdown().await?;
    let scoop = starts::<original::Shop>(db, notes).await?;
    let mut roots = vec![];
    for _ in 0..RUNS {
        let root = scoop.launch(Order::default()).await?;
        root.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Waiting)).await?;
        roots.push(db.client().find(root.id()).await?);
    }
    Ok((scoop, roots))
}

/// All runs end, in the original program.
async fn end(roots: &[Handle], notes: &Notes) -> Result<()> {
    for root in roots {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    assert_eq!(notes.all(), [["price@original"; RUNS], ["charge@original"; RUNS]].concat());
    Ok(())
}

/// The original program finishes its runs while the version `S` lives, which has started later.
async fn finished_beside<S: Version>() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let (old, roots) = waiting(&db, &notes).await?;
    let new = starts::<S>(&db, &notes).await?;
    let clerk = db.start((Clerk,)).await?;
    end(&roots, &notes).await?;
    assert!(new.operate().failures().stuck().await?.is_empty());
    for scoop in [clerk, new, old] {
        scoop.shutdown().await?;
    }
    Ok(())
}

/// Why the version `S` cannot continue the runs, which the original program then finishes.
async fn stuck_in<S: Version>() -> Result<String> {
    let (db, notes) = (Database::new().await, Notes::default());
    let (old, roots) = waiting(&db, &notes).await?;
    old.shutdown().await?;
    let (new, clerk) = (starts::<S>(&db, &notes).await?, db.start((Clerk,)).await?);
    for root in &roots {
        root.comes_to(|tree| matches!(tree.roots()[0].state, RunState::Stuck { .. })).await?;
    }
    let stuck = new.operate().failures().stuck().await?;
    assert_eq!(stuck.len(), RUNS);
    new.shutdown().await?;
    let old = starts::<original::Shop>(&db, &notes).await?;
    end(&roots, &notes).await?;
    for scoop in [clerk, old] {
        scoop.shutdown().await?;
    }
    Ok(stuck[0].reason.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_the_newer_program_cannot_read_is_left_to_the_older_one() -> Result<()> {
    finished_beside::<other_message::Shop>().await
}

#[tokio::test(flavor = "multi_thread")]
async fn value_that_the_newer_program_cannot_read_is_left_to_the_older_one() -> Result<()> {
    finished_beside::<other_value::Shop>().await
}

#[tokio::test(flavor = "multi_thread")]
async fn run_unreadable_in_the_newer_program_waits_for_the_older_one() -> Result<()> {
    let reason = stuck_in::<other_message::Shop>().await?;
    assert!(reason.contains("does not fit the message type of saga `shop`"), "{reason}");
    let reason = stuck_in::<other_value::Shop>().await?;
    assert!(reason.contains("what step `price` returned is not a"), "{reason}");
    Ok(())
}

mod asked {
    use super::*;

    macro_rules! asked {
        ($($version:ident: $reply:ty = $value:expr,)*) => {$(
            pub(super) mod $version {
                use super::*;

                #[derive(Message, Serialize, Deserialize)]
                #[message(topic = "prices", reply = $reply)]
                pub(in super::super) struct Ask;

                pub(in super::super) struct Buyer {
                    notes: Notes,
                }

                impl Version for Buyer {
                    fn new(notes: &Notes) -> Self {
                        Self { notes: notes.clone() }
                    }
                }

                #[saga(name = "buyer")]
                #[subscribes(Order)]
                impl Buyer {
                    #[step]
                    async fn ask(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
                        scope.launch(Ask).await?;
                        Ok(())
                    }

                    #[step]
                    async fn pay(&self, scope: &mut Scope<'_>, _: &Order) -> Result<()> {
                        let replies = scope.replies::<Ask>().await?;
                        self.notes.add(format!("{:?}@{}", replies[0].value, stringify!($version)));
                        Ok(())
                    }
                }

                #[derive(Default)]
                pub(in super::super) struct Seller;

                #[saga(name = "seller")]
                #[subscribes(Ask)]
                impl Seller {
                    #[step]
                    async fn quote(&self, scope: &mut Scope<'_>, ask: &Ask) -> Result<()> {
                        scope.reply(ask, $value)
                    }
                }
            }
        )*};
    }

    asked! {
        cents: i64 = 7,
        words: String = "seven".to_owned(),
    }
}

/// The definition of a saga does not show which replies it reads before it has read one.
#[tokio::test(flavor = "multi_thread")]
async fn reply_that_the_newer_program_cannot_read_is_left_to_the_older_one() -> Result<()> {
    use asked::{cents, words};

    let (db, notes) = (Database::new().await, Notes::default());
    let old = starts::<cents::Buyer>(&db, &notes).await?;
    let new = starts::<words::Buyer>(&db, &notes).await?;
    let seller = db.scoop().only::<cents::Seller>().start().await?;
    for _ in 0..RUNS {
        assert_eq!(new.launch(Order::default()).await?.ends().await?, Outcome::Committed);
    }
    assert_eq!(notes.all(), ["7@cents"; RUNS]);
    seller.shutdown().await?;
    // The reverse: replies that the older one cannot read go to the newer one.
    let seller = db.scoop().only::<words::Seller>().start().await?;
    for _ in 0..RUNS {
        assert_eq!(old.launch(Order::default()).await?.ends().await?, Outcome::Committed);
    }
    assert_eq!(notes.all()[RUNS..], [r#""seven"@words"#; RUNS]);
    assert!(new.operate().failures().stuck().await?.is_empty());
    for scoop in [seller, new, old] {
        scoop.shutdown().await?;
    }
    Ok(())
}
