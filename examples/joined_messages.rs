//! A saga that joins messages: it starts once for a payment and a picked order with the same number, in a hierarchy of
//! its own. A message is withdrawn if its emitter rolls back, and a set that is incomplete for too long fails.
//!
//! ```text
//! cargo run -p examples --example joined_messages
//! ```

use std::time::Duration;

use scoop::JoinIncomplete;
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "payments.captured")]
struct PaymentCaptured {
    order: u32,
    cents: u64,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "stock.picked")]
struct StockPicked {
    order: u32,
    shelf: String,
}

#[derive(Default)]
struct Shipping;

#[saga]
#[subscribes(join(PaymentCaptured, StockPicked, by = order, within = "2s"))]
impl Shipping {
    #[step(rollback = recall)]
    async fn ship(&self, _: &mut Scope<'_>, set: &ShippingMessage) -> Result<()> {
        let ShippingMessage { payment_captured: paid, stock_picked: picked } = set;
        println!("order {} for {} cents leaves shelf {}", paid.order, paid.cents, picked.shelf);
        Ok(())
    }

    async fn recall(&self, _: &mut Scope<'_>, set: &ShippingMessage, why: &Failure) -> Result<()> {
        println!("order {} comes back: {why}", set.payment_captured.order);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;

    let payment = scoop.launch(PaymentCaptured { order: 7, cents: 990 }).await?;
    payment.wait().await?;
    for waiting in scoop.operate().runs().waiting_members().await? {
        println!("{} waits for the others of key {}", waiting.topic, waiting.key);
    }
    scoop.launch(StockPicked { order: 7, shelf: "B3".into() }).await?.wait().await?;
    for shipment in scoop.operate().runs().joined(payment.message_id()).await? {
        assert_eq!(scoop.find(shipment).await?.wait().await?, Outcome::Committed);
    }

    // The payment of this order never comes.
    let picked = scoop.launch(StockPicked { order: 8, shelf: "C1".into() }).await?;
    picked.wait().await?;
    let incomplete = loop {
        match scoop.operate().runs().joined(picked.message_id()).await?.first() {
            Some(id) => break scoop.find(*id).await?,
            None => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    let Outcome::RolledBack(why) = incomplete.wait().await? else { panic!("nothing was paid") };
    let why = why.find::<JoinIncomplete>().expect("it is incomplete");
    println!("{why}");
    assert_eq!(why.missing, ["payments.captured"]);
    scoop.shutdown().await?;
    Ok(())
}
