//! Values that their types do not read back, and numbers that would be stored as other ones: refused where they are written.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::*;
use crate::support::{Database, Notes};

/// A flattened map reads texts as its keys only.
#[derive(Serialize, Deserialize)]
struct Stock {
    #[serde(flatten)]
    by_number: BTreeMap<u32, u32>,
}

fn unreadable() -> Stock {
    Stock { by_number: BTreeMap::from([(7, 1)]) }
}

/// The cause for which a message cannot be written.
fn cause_of(refused: &RuntimeError) -> String {
    let text = refused.to_string();
    assert!(refused.is_invalid() && text.starts_with("a message for topic `"), "{text}");
    assert!(text.ends_with("` cannot be written as JSON"), "{text}");
    std::error::Error::source(refused).expect("it has a cause").to_string()
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "read_back.where", reply = Stock)]
enum Where {
    Output,
    Launch,
    Reply,
    Context,
    Signal,
    Nowhere,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "read_back.restock")]
struct Restock(Stock);

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "read_back.counted", retention = "1 day")]
struct Counted {
    stock: Stock,
}

#[derive(ContextKey, Serialize, Deserialize)]
struct Shelf(Stock);

struct Warehouse {
    notes: Notes,
}

#[saga(name = "read-back-warehouse")]
#[subscribes(Where)]
impl Warehouse {
    #[step(rollback = close)]
    async fn open(&self, _: &mut Scope<'_>, _: &Where) -> Result<()> {
        self.notes.add("open");
        Ok(())
    }

    #[step(rollback = recount)]
    async fn count(&self, scope: &mut Scope<'_>, place: &Where) -> Result<Stock> {
        match place {
            Where::Launch => drop(scope.launch(Restock(unreadable())).await?),
            Where::Reply => scope.reply(place, unreadable())?,
            Where::Context => scope.set(Shelf(unreadable()))?,
            Where::Signal => scope.signal(Counted { stock: unreadable() }, "key")?,
            Where::Output => return Ok(unreadable()),
            Where::Nowhere => {}
        }
        Ok(Stock { by_number: BTreeMap::new() })
    }

    #[step]
    async fn list(&self, _: &mut Scope<'_>, _: &Where, from_count: &Stock) -> Result<()> {
        assert!(from_count.by_number.is_empty());
        Ok(())
    }

    async fn close(&self, _: &mut Scope<'_>, _: &Where, _: &Failure) -> Result<()> {
        self.notes.add("close");
        Ok(())
    }

    async fn recount(&self, _: &mut Scope<'_>, _: &Where, _: &Stock, _: &Failure) -> Result<()> {
        self.notes.add("recount");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn value_that_its_type_does_not_read_back_fails_the_step_that_writes_it() -> Result<()> {
    let db = Database::new().await;
    let notes = Notes::default();
    let scoop = db.scoop().provide(Warehouse { notes: notes.clone() }).only::<Warehouse>().start().await?;
    let cases = [
        (Where::Output, "what step `count` of saga `read-back-warehouse` returned cannot be stored", "Stock"),
        (Where::Launch, "a message for topic `read_back.restock`, from step `count`", "Restock"),
        (Where::Reply, "the reply of step `count` of saga `read-back-warehouse` cannot be stored", "Stock"),
        (Where::Context, "the value for the key `Shelf` of the context, from step `count`", "Shelf"),
        (Where::Signal, "signal `read_back.counted`", "Counted"),
    ];
    for (place, what, name) in cases {
        let Outcome::RolledBack(failure) = scoop.launch(place).await?.ends().await? else {
            panic!("it was to fail: {what}");
        };
        let why = format!("::{name}` does not read back what it writes: ");
        assert!(failure.message.contains(what) && failure.message.contains(&why), "{failure}");
        assert_eq!(notes.all().last().map(String::as_str), Some("close"), "{what}");
    }
    assert_eq!(scoop.launch(Where::Nowhere).await?.ends().await?, Outcome::Committed);
    assert_eq!(notes.all(), [["open", "close"].repeat(5), vec!["open"]].concat());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn value_of_a_client_that_its_type_does_not_read_back_is_refused() -> Result<()> {
    let db = Database::new().await;
    let client = db.client();
    let why = "does not read back what it writes";
    let Err(refused) = client.launch(Restock(unreadable())).await else { panic!("it was launched") };
    let cause = cause_of(&refused);
    assert!(cause.contains(why), "{cause}");
    let Err(refused) = client.launch_all([Restock(unreadable())]).await else { panic!("it was launched") };
    let cause = cause_of(&refused);
    assert!(cause.contains(why), "{cause}");
    let Err(error) = client.launch(Where::Nowhere).with(Shelf(unreadable())).await else {
        panic!("it was launched")
    };
    assert!(error.is_invalid() && error.to_string().starts_with("the value for the key `"), "{error}");
    assert!(error.to_string().ends_with("` of the context cannot be written as JSON"), "{error}");
    assert!(Error::from(error).chain().any(|cause| cause.to_string().contains(why)));
    let refused = client.signal(Counted { stock: unreadable() }, "key").await.unwrap_err();
    assert!(refused.to_string().contains(why), "{refused}");
    assert_eq!(db.history().await.rows().len(), 0);
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "read_back.amount", reply = f64)]
struct Amount {
    exact: Option<u128>,
    json: Box<RawValue>,
    rate: f64,
}

/// Elements of the context have all digits.
#[derive(Clone, Debug, PartialEq, ContextKey, Serialize, Deserialize)]
struct Wide(u128, i128);

#[derive(Serialize, Deserialize)]
struct Booked(Box<RawValue>);

#[derive(Default)]
struct Bank;

#[saga(name = "read-back-bank")]
#[subscribes(Amount)]
impl Bank {
    #[step]
    async fn book(&self, scope: &mut Scope<'_>, amount: &Amount) -> Result<Booked> {
        assert_eq!(scope.get::<Wide>()?, Some(Wide(u128::MAX, i128::MIN)));
        scope.reply(amount, amount.rate)?;
        let other = if amount.exact == Some(1) { "[18446744073709551617]" } else { amount.json.get() };
        Ok(Booked(RawValue::from_string(other.into())?))
    }

    #[step]
    async fn check(&self, _: &mut Scope<'_>, amount: &Amount, from_book: &Booked) -> Result<()> {
        assert_eq!(from_book.0.get(), amount.json.get());
        assert_eq!(from_book.0.get(), "18446744073709551615");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn number_is_read_back_equal_or_refused() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Bank,)).await?;
    let amount = |exact, json: &str, rate| {
        let amount = Amount { exact, json: RawValue::from_string(json.into()).unwrap(), rate };
        scoop.launch(amount).with(Wide(u128::MAX, i128::MIN))
    };
    let why = "a number that would not be stored as it is; write it as text";
    for (exact, json, expected) in [
        (None, "18446744073709551617", format!("json contains 18446744073709551617, {why}")),
        (None, r#"{"a": [-0.0]}"#, format!("json contains -0.0, {why}")),
        (Some(u128::MAX), "0", format!("exact is {}, {why}", u128::MAX)),
    ] {
        let Err(refused) = amount(exact, json, 0.5).await else { panic!("it was launched: {json}") };
        assert_eq!(cause_of(&refused), expected);
    }
    let largest = u64::MAX.to_string();
    let Outcome::RolledBack(failure) = amount(Some(1), &largest, 0.5).await?.ends().await? else {
        panic!("it was to fail")
    };
    assert!(failure.message.contains("`book`") && failure.message.contains(why), "{failure}");
    for rate in [-0.0, f64::MAX, f64::MIN_POSITIVE, 1e23, 0.1 + 0.2] {
        let booked = amount(Some(u128::from(u64::MAX)), &largest, rate).await?;
        assert_eq!(booked.ends().await?, Outcome::Committed);
        let replies: Vec<_> =
            booked.replies::<Amount>().await?.into_iter().map(|reply| reply.value).collect();
        assert_eq!(replies, [rate]);
    }
    Ok(())
}
