//! Failures far below a service, as the service gets them: the error itself, and its path.

use super::*;
use crate::support::Database;

#[derive(Debug, PartialEq, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure(code = "stock.out")]
#[error("{wanted} of `{product}` were wanted, {left} are left")]
struct OutOfStock {
    product: String,
    wanted: u32,
    left: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot take from the shelf")]
struct CannotTake(#[source] OutOfStock);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "failures-above-order")]
struct Order {
    product: String,
    wanted: u32,
    /// Whether the order takes the remaining products.
    content_with_less: bool,
}

/// Stands between the shop and the stock, and knows neither's errors.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "failures-above-forward")]
struct Forward(Reserve);

#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "failures-above-reserve")]
struct Reserve {
    product: String,
    wanted: u32,
}

#[derive(Default)]
struct Shop;

#[saga]
#[subscribes(Order)]
impl Shop {
    #[step(on_child_failure = take_what_is_left)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        let reserve = Reserve { product: order.product.clone(), wanted: order.wanted };
        scope.launch(Forward(reserve)).await?;
        Ok(())
    }

    async fn take_what_is_left(&self, scope: &mut Scope<'_>, order: &Order, why: &Failure) -> Result<()> {
        match why.find::<OutOfStock>() {
            Some(OutOfStock { product, left, .. }) if order.content_with_less => {
                scope.launch(Forward(Reserve { product, wanted: left })).await?;
                Ok(())
            }
            _ => Err(Error::failure(why.clone())),
        }
    }
}

#[derive(Default)]
struct Forwarder;

#[saga]
#[subscribes(Forward)]
impl Forwarder {
    #[step]
    async fn forward(&self, scope: &mut Scope<'_>, Forward(reserve): &Forward) -> Result<()> {
        scope.launch(reserve.clone()).await?;
        Ok(())
    }
}

#[derive(Default)]
struct Stock;

const LEFT: u32 = 2;

#[saga]
#[subscribes(Reserve)]
impl Stock {
    #[step]
    async fn take(&self, _: &mut Scope<'_>, reserve: &Reserve) -> Result<()> {
        self.find_shelf(reserve).await?;
        Ok(())
    }

    async fn find_shelf(&self, reserve: &Reserve) -> Result<()> {
        let wanted = reserve.wanted;
        take_from_shelf(reserve)?;
        assert!(wanted <= LEFT);
        Ok(())
    }
}

fn take_from_shelf(Reserve { product, wanted }: &Reserve) -> Result<()> {
    let out = OutOfStock { product: product.clone(), wanted: *wanted, left: LEFT };
    if *wanted > LEFT { Err(CannotTake(out))? } else { Ok(()) }
}

/// The first line with this code in this file.
fn line_of(code: &str) -> usize {
    let before =
        include_str!("failure_propagation.rs").split(code).next().expect("there is always a first part");
    before.lines().count()
}

/// The outcome of an order.
async fn order(db: &Database, order: Order) -> Result<Outcome> {
    let scoop = db.start((Shop, Forwarder, Stock)).await?;
    Ok(scoop.launch(order).await?.ends().await?)
}

fn chairs(wanted: u32) -> Order {
    Order { product: "chair".into(), wanted, content_with_less: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_above_finds_the_error_and_does_something_else() -> Result<()> {
    let db = Database::new().await;
    let outcome = order(&db, Order { content_with_less: true, ..chairs(7) }).await?;
    assert_eq!(outcome, Outcome::Committed);
    let taken = "SELECT payload->>'wanted' FROM scoop.message WHERE topic = 'failures-above-reserve'
                 ORDER BY 1 DESC";
    assert_eq!(db.texts(taken).await, ["7", "2"]);
    Ok(())
}

/// A NUL cannot be stored as such.
#[tokio::test(flavor = "multi_thread")]
async fn client_finds_the_error_unchanged() -> Result<()> {
    let db = Database::new().await;
    let product = "\u{1F984}\" \\u0000 \\".to_owned();
    let Outcome::RolledBack(failure) = order(&db, Order { product: product.clone(), ..chairs(7) }).await?
    else {
        panic!("it did not fail");
    };
    assert_eq!(failure.find_all::<OutOfStock>(), [OutOfStock { product, wanted: 7, left: LEFT }]);
    assert!(failure.has_code("stock.out"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn error_with_a_nul_comes_back_whole() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Nul,)).await?;
    let Outcome::RolledBack(failure) = scoop.launch(Root).await?.ends().await? else {
        panic!("it did not fail");
    };
    assert_eq!(failure.message, "1 of `ab` were wanted, 0 are left");
    assert_eq!(failure.find::<OutOfStock>().map(|it| it.product), Some("a\0b".into()));
    Ok(())
}

handler! {
    Nul: "nul" on Root;
    step "step" step => fails(OutOfStock { product: "a\0b".into(), wanted: 1, left: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn report_shows_the_path_through_all_services_with_every_question_mark() -> Result<()> {
    let db = Database::new().await;
    let Outcome::RolledBack(failure) = order(&db, chairs(7)).await? else {
        panic!("it did not fail");
    };
    let worker =
        db.texts("SELECT DISTINCT coroutine_identifier FROM scoop.message_event WHERE type = 'SEEN'");
    let places = ["Err(CannotTake(out))?", "take_from_shelf(reserve)?", "self.find_shelf(reserve).await?"];
    let [converted, in_helper, in_step] = places.map(line_of);
    let file = file!();
    let report = failure.report().replace(&worker.await[0], "w");
    assert_eq!(
        report,
        format!(
            "\
[shop[w]] what step `reserve` launched has failed
  caused by [forwarder[w]] what step `forward` launched has failed
    caused by [stock[w]] it::behaviour::failure_propagation::CannotTake: cannot take from the shelf
        at {file}:{converted}
        at {file}:{in_helper} in find_shelf
        at {file}:{in_step} in take
      caused by [stock[w]] stock.out: 7 of `chair` were wanted, 2 are left
"
        )
    );
    Ok(())
}
