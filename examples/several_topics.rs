//! A saga of several messages: its steps take an enum of them. Each message keeps its topic and its replies.
//!
//! ```text
//! cargo run -p examples --example several_topics
//! ```

use scoop::operate::OperateExt as _;
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.placed", reply = Price)]
struct OrderPlaced {
    order: u32,
    chairs: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.changed", reply = Price)]
struct OrderChanged {
    order: u32,
    chairs: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.withdrawn")]
struct OrderWithdrawn {
    order: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Price {
    euros: u32,
}

#[derive(Serialize, Deserialize)]
struct Reserved {
    chairs: u32,
}

#[derive(Default)]
struct Warehouse;

#[saga]
#[subscribes(any(OrderPlaced, OrderChanged, OrderWithdrawn))]
impl Warehouse {
    #[step(rollback = release)]
    async fn reserve(&self, _: &mut Scope<'_>, message: &WarehouseMessage) -> Result<Reserved> {
        let (order, chairs) = match message {
            WarehouseMessage::OrderPlaced(OrderPlaced { order, chairs })
            | WarehouseMessage::OrderChanged(OrderChanged { order, chairs }) => (order, *chairs),
            WarehouseMessage::OrderWithdrawn(OrderWithdrawn { order }) => (order, 0),
        };
        println!("order {order} has {chairs} chairs");
        Ok(Reserved { chairs })
    }

    /// The reply is checked by the type of the message.
    #[step]
    async fn price(
        &self,
        scope: &mut Scope<'_>,
        message: &WarehouseMessage,
        reserved: &Reserved,
    ) -> Result<()> {
        let price = Price { euros: 40 * reserved.chairs };
        match message {
            WarehouseMessage::OrderPlaced(order) => scope.reply(order, price),
            WarehouseMessage::OrderChanged(change) => scope.reply(change, price),
            WarehouseMessage::OrderWithdrawn(_) => Ok(()),
        }
    }

    async fn release(
        &self,
        _: &mut Scope<'_>,
        _: &WarehouseMessage,
        reserved: &Reserved,
        _: &Failure,
    ) -> Result<()> {
        println!("{} chairs are free again", reserved.chairs);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let price = scoop.launch(OrderPlaced { order: 7, chairs: 4 }).result().await?;
    assert_eq!(price, Price { euros: 160 });
    let price = scoop.launch(OrderChanged { order: 7, chairs: 2 }).result().await?;
    assert_eq!(price, Price { euros: 80 });
    let withdrawn = scoop.launch(OrderWithdrawn { order: 7 }).await?;
    assert_eq!(withdrawn.wait().await?, Outcome::Committed);
    for listed in scoop.operate().handlers().list().await? {
        println!("{} handles {}", listed.handler, listed.topic);
    }
    scoop.shutdown().await?;
    Ok(())
}
