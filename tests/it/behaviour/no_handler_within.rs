//! Messages without a handler that are launched in a transaction, or after the retirement of their handler.

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "within.charge", handlers = "required")]
struct Charge;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "within.bill")]
struct Bill {
    once: bool,
}

#[derive(Default)]
struct Biller;

#[saga(name = "within-biller")]
#[subscribes(Bill)]
impl Biller {
    #[step]
    async fn bill(&self, scope: &mut Scope<'_>, bill: &Bill) -> Result<()> {
        sqlx::query("INSERT INTO bills VALUES (1)").execute(scope.tx().await?).await?;
        match bill.once {
            true => drop(scope.detach_unique(Charge, "7").await?),
            false => drop(scope.launch(Charge).await?),
        }
        Ok(())
    }
}

handler! {
    Charger: "within-charger" on Charge;
    step "charge" charge => done();
}

fn is_without_handler(error: &RuntimeError) -> bool {
    let expected = "no handler is subscribed to topic `within.charge`, ";
    error.is_no_handler() && error.to_string().starts_with(expected)
}

#[tokio::test(flavor = "multi_thread")]
async fn message_launched_once_before_its_handler_was_retired_is_found_again() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Charger,)).await?;
    let first = scoop.launch(Charge).unique("7").await?;
    assert_eq!(first.ends().await?, Outcome::Committed);
    scoop.operate().handlers().retire("within.charge", "within-charger").await?;
    assert_eq!(scoop.launch(Charge).unique("7").await?.id(), first.id());
    let refused = scoop.launch(Charge).unique("8").await;
    assert!(refused.is_err_and(|error| is_without_handler(&error)));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_launch_leaves_the_transaction_of_the_caller_usable() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE bills (id int)").await;
    let scoop = db.start((Biller,)).await?;
    let mut tx = db.pool().begin().await?;
    sqlx::query("INSERT INTO bills VALUES (1)").execute(&mut *tx).await?;
    let refused = scoop.launch(Charge).in_transaction(&mut tx).await;
    assert!(refused.is_err_and(|error| is_without_handler(&error)));
    let refused = scoop.launch(Bill { once: true }).required().in_transaction(&mut tx).await;
    assert!(refused.is_ok());
    tx.commit().await?;
    assert_eq!(db.number("SELECT count(*) FROM bills").await, 1);
    assert_eq!(db.number("SELECT count(*) FROM scoop.message WHERE topic = 'within.charge'").await, 0);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_launch_rolls_the_transaction_of_its_step_back() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE bills (id int)").await;
    let scoop = db.start((Biller,)).await?;
    for once in [false, true] {
        let outcome = scoop.launch(Bill { once }).await?.ends().await?;
        let Outcome::RolledBack(failure) = outcome else { panic!("{outcome:?}") };
        assert!(
            failure.to_string().contains("no handler is subscribed to topic `within.charge`"),
            "{failure}"
        );
    }
    assert_eq!(db.number("SELECT count(*) FROM bills").await, 0);
    scoop.shutdown().await?;
    db.history().await;
    Ok(())
}
