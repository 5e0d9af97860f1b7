//! The sagas, and the two ledgers in which their steps enter their effects.

use std::str::FromStr;
use std::time::Duration;

use scoop::prelude::*;
use scoop::{Failed, Interrupted};
use serde_json::Value;
use sqlx::PgPool;

/// One kind of hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Plot {
    /// A saga with a child, a command, a signal and a joined saga. All of it commits.
    Ships,
    /// The same, which fails in its last step: all of it is rolled back.
    Fails,
    /// A step that runs at most once.
    Pays,
    /// A run of three executions, with a child in each and a pause between them.
    Reads,
}

impl Plot {
    pub(crate) const ALL: [Self; 4] = [Self::Ships, Self::Fails, Self::Pays, Self::Reads];
}

impl FromStr for Plot {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let plot = Self::ALL.into_iter().find(|plot| format!("{plot:?}") == name);
        plot.ok_or_else(|| Error::msg(format!("no plot is called {name:?}; there are {:?}", Self::ALL)))
    }
}

/// The ledger inside, in the database of the sagas, and the one outside, in another database. Deliberately without any
/// constraint that would hide a second entry.
pub(crate) const LEDGER: &str =
    "CREATE TABLE ledger (number bigint NOT NULL, what text NOT NULL, key uuid NOT NULL)";

const ENTER: &str = "INSERT INTO ledger (number, what, key) VALUES ($1, $2, $3)";

/// Enters an effect in the transaction of the step.
async fn inside(scope: &mut Scope<'_>, number: i64, what: &str) -> Result<()> {
    let row = sqlx::query(ENTER).bind(number).bind(what.to_owned()).bind(scope.idempotency_key());
    row.execute(scope.tx().await?).await?;
    Ok(())
}

/// The ledger outside, to which each entry is a call of its own.
#[derive(Clone)]
pub(crate) struct Outside(pub(crate) PgPool);

impl Outside {
    /// Enters an effect there. A failure is one of the connection: there is no other.
    async fn enter(&self, scope: &Scope<'_>, number: i64, what: &str) -> Result<()> {
        let row = sqlx::query(ENTER).bind(number).bind(what.to_owned()).bind(scope.idempotency_key());
        row.execute(&self.0).await?;
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kill.order")]
pub(crate) struct Order {
    pub(crate) number: i64,
    pub(crate) fails: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kill.parcel")]
struct Parcel {
    number: i64,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kill.packed")]
struct Packed {
    number: i64,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kill.stamped")]
struct Stamped {
    number: i64,
}

/// Sends a signal, while the run that awaits it goes on.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kill.transfer")]
struct Transfer {
    number: i64,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "kill.paid", retention = "1 day")]
struct Paid {
    number: i64,
}

pub(crate) struct Shop {
    pub(crate) outside: Outside,
}

#[saga(name = "shop")]
#[subscribes(Order)]
impl Shop {
    #[step(rollback = release, delivery = "at_least_once")]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        self.outside.enter(scope, order.number, "reserve").await?;
        inside(scope, order.number, "reserve").await?;
        scope.launch(Parcel { number: order.number }).await?;
        scope.launch(Take { product: order.number, units: 3 }).await?;
        scope.detach(Transfer { number: order.number }).await?;
        Ok(())
    }

    #[step(awaits(Paid, by = number), rollback = unship)]
    async fn ship(&self, scope: &mut Scope<'_>, order: &Order, paid: &Paid) -> Result<()> {
        inside(scope, paid.number, "ship").await?;
        self.outside.enter(scope, order.number, "ship").await
    }

    async fn number(&self, _: &mut Scope<'_>, order: &Order) -> Result<String> {
        Ok(order.number.to_string())
    }

    #[step]
    async fn close(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        inside(scope, order.number, "close").await?;
        if order.fails { Err(Error::msg("no courier")) } else { Ok(()) }
    }

    async fn unship(&self, scope: &mut Scope<'_>, order: &Order, _: &Paid, _: &Failure) -> Result<()> {
        inside(scope, order.number, "unship").await
    }

    async fn release(&self, scope: &mut Scope<'_>, order: &Order, _: &Failure) -> Result<()> {
        self.outside.enter(scope, order.number, "release").await?;
        inside(scope, order.number, "release").await
    }
}

#[derive(Default)]
struct Post;

#[saga(name = "post")]
#[subscribes(Parcel)]
impl Post {
    #[step(rollback = unpack)]
    async fn pack(&self, scope: &mut Scope<'_>, parcel: &Parcel) -> Result<()> {
        inside(scope, parcel.number, "pack").await?;
        scope.launch(Packed { number: parcel.number }).await?;
        scope.launch(Stamped { number: parcel.number }).await?;
        Ok(())
    }

    async fn unpack(&self, scope: &mut Scope<'_>, parcel: &Parcel, _: &Failure) -> Result<()> {
        inside(scope, parcel.number, "unpack").await
    }
}

#[derive(Default)]
struct Bank;

#[saga(name = "bank")]
#[subscribes(Transfer)]
impl Bank {
    #[step]
    async fn transfer(&self, scope: &mut Scope<'_>, transfer: &Transfer) -> Result<()> {
        scope.signal(Paid { number: transfer.number }, transfer.number.to_string())
    }
}

#[derive(Default)]
struct Dispatch;

#[saga(name = "dispatch")]
#[subscribes(join(Packed, Stamped, by = number))]
impl Dispatch {
    #[step(rollback = recall)]
    async fn dispatch(&self, scope: &mut Scope<'_>, of: &DispatchMessage) -> Result<()> {
        inside(scope, of.packed.number, "dispatch").await
    }

    async fn recall(&self, scope: &mut Scope<'_>, of: &DispatchMessage, _: &Failure) -> Result<()> {
        inside(scope, of.packed.number, "recall").await
    }
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stock {
    pub(crate) taken: i64,
}

#[entity(name = "kill.stock", key = i64)]
impl Stock {
    fn taken(&mut self, event: &Taken) {
        self.taken += event.units;
    }

    fn returned(&mut self, event: &Returned) {
        self.taken -= event.units;
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kill.taken")]
struct Taken {
    product: i64,
    units: i64,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kill.returned")]
struct Returned {
    units: i64,
}

#[derive(Serialize, Deserialize)]
struct Take {
    product: i64,
    units: i64,
}

#[command(entity = Stock, topic = "kill.take")]
impl Take {
    fn key(&self) -> i64 {
        self.product
    }

    fn decide(&self, _: &Stock) -> Decision<Taken, ()> {
        Decision::Accepted(Taken { product: self.product, units: self.units })
    }

    fn undo(&self, _: &Stock, taken: &Taken) -> Option<Returned> {
        Some(Returned { units: taken.units })
    }
}

/// Handles the event of the command.
#[derive(Default)]
struct Shelves;

#[saga(name = "shelves")]
#[subscribes(Taken)]
impl Shelves {
    #[step]
    async fn note(&self, scope: &mut Scope<'_>, taken: &Taken) -> Result<()> {
        inside(scope, taken.product, "take").await
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kill.bill")]
pub(crate) struct Bill {
    pub(crate) number: i64,
}

pub(crate) struct Payments {
    pub(crate) outside: Outside,
}

#[saga(name = "payments")]
#[subscribes(Bill)]
impl Payments {
    #[step(rollback = give_back)]
    async fn prepare(&self, scope: &mut Scope<'_>, bill: &Bill) -> Result<()> {
        inside(scope, bill.number, "prepare").await
    }

    async fn give_back(&self, scope: &mut Scope<'_>, bill: &Bill, why: &Failure) -> Result<()> {
        let what = match why.find::<Interrupted>() {
            Some(interrupted) => format!("give back after interrupted {}", interrupted.step),
            None => "give back".to_owned(),
        };
        inside(scope, bill.number, &what).await
    }

    #[step(delivery = "at_most_once")]
    async fn charge(&self, scope: &mut Scope<'_>, bill: &Bill) -> Result<()> {
        self.outside.enter(scope, bill.number, "charge").await?;
        inside(scope, bill.number, "charge").await
    }

    #[step]
    async fn thank(&self, scope: &mut Scope<'_>, bill: &Bill) -> Result<()> {
        inside(scope, bill.number, "thank").await
    }
}

/// How many executions a feed has.
pub(crate) const EXECUTIONS: u32 = 3;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kill.feed")]
pub(crate) struct Feed {
    pub(crate) number: i64,
    pub(crate) cursor: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "kill.article")]
struct Article {
    number: i64,
    cursor: u32,
}

pub(crate) struct Reader {
    pub(crate) outside: Outside,
}

#[saga(name = "reader")]
#[subscribes(Feed)]
impl Reader {
    #[step]
    async fn fetch(&self, scope: &mut Scope<'_>, feed: &Feed) -> Result<()> {
        let Feed { number, cursor } = *feed;
        self.outside.enter(scope, number, &format!("fetch {cursor}")).await?;
        scope.launch(Article { number, cursor }).await?;
        inside(scope, number, &format!("fetch {cursor}")).await
    }

    #[step]
    async fn turn(&self, scope: &mut Scope<'_>, feed: &Feed) -> Result<ContinueAsNew<ReaderStep, Feed>> {
        let Feed { number, cursor } = *feed;
        inside(scope, number, &format!("turn {cursor}")).await?;
        if cursor + 1 == EXECUTIONS {
            return Ok(Next::Continue.into());
        }
        scope.sleep(Duration::from_millis(1)).await?;
        Ok(Next::continue_as_new(Feed { number, cursor: cursor + 1 }))
    }
}

#[derive(Default)]
struct Archive;

#[saga(name = "archive")]
#[subscribes(Article)]
impl Archive {
    #[step]
    async fn keep(&self, scope: &mut Scope<'_>, article: &Article) -> Result<()> {
        inside(scope, article.number, &format!("keep {}", article.cursor)).await
    }
}

/// Enters each failed hierarchy, under the number in its message.
#[derive(Default)]
struct OnCall;

#[saga(name = "on-call")]
#[subscribes(Failed)]
impl OnCall {
    #[step]
    async fn note(&self, scope: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        let number = failed.payload.as_ref().and_then(number_in);
        inside(scope, number.unwrap_or(-1), &format!("failed {} {}", failed.saga, failed.outcome)).await
    }
}

/// The number in a message of these plots, or in a set of them.
fn number_in(payload: &Value) -> Option<i64> {
    let own = payload.get("number").and_then(Value::as_i64);
    own.or_else(|| payload.as_object()?.values().find_map(number_in))
}
