//! The Python program of the page about the tables. A binary of its own, which `cargo test` leaves out because it needs
//! psycopg: `cargo test --test psycopg`.

use scoop::prelude::*;
use scoop_test_support::postgres::Database;
use sqlx::ConnectOptions as _;
use tokio::process::Command;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.placed")]
struct OrderPlaced {
    order: u64,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "payments.confirmed", retention = "1 day")]
struct PaymentConfirmed {
    cents: u64,
}

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(awaits(PaymentConfirmed, by = number))]
    async fn collect(&self, _: &mut Scope<'_>, order: &OrderPlaced, paid: &PaymentConfirmed) -> Result<()> {
        assert_eq!((order.order, paid.cents), (7, 990));
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, order: &OrderPlaced) -> Result<String> {
        Ok(order.order.to_string())
    }
}

/// The only block of Python on the page.
fn program() -> &'static str {
    let page = include_str!("../../docs/reference/tables.md");
    let (_, rest) = page.split_once("```python\n").expect("the page has a program");
    rest.split_once("```").expect("the block ends").0
}

#[tokio::test(flavor = "multi_thread")]
async fn program_in_python_launches_signals_and_waits() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().start().await?;
    let mut url = db.pool().connect_options().to_url_lossy();
    // psycopg refuses settings of others.
    let known: Vec<_> =
        url.query_pairs().into_owned().filter(|(name, _)| name != "statement-cache-capacity").collect();
    url.query_pairs_mut().clear().extend_pairs(known);
    let ran = Command::new("python3").args(["-c", program(), url.as_str()]).output().await?;
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "{'checkout': 'committed'}", "{errors}");
    scoop.shutdown().await?;
    Ok(())
}
