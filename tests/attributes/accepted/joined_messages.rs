//! A saga that joins messages: the functions take a struct of them.
#![deny(warnings)]
use scoop::prelude::*;

mod payments {
    use scoop::prelude::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "payments.captured")]
    pub(super) struct Captured {
        pub(super) order: u32,
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "stock.picked", reply = u32)]
struct StockPicked {
    order: u32,
    shelf: String,
}

#[derive(Message, Serialize, Deserialize)]
struct Match {
    order: u32,
}

#[derive(Default)]
struct Shipping;

#[saga(was = ["dispatch", "sending"])]
#[subscribes(join(payments::Captured, StockPicked, Match, by = order, within = "3 days"))]
impl Shipping {
    #[step(rollback = recall)]
    async fn ship(&self, _: &mut Scope<'_>, of: &ShippingMessage) -> Result<String> {
        assert_eq!(of.captured.order, of.the_match.order);
        Ok(of.stock_picked.shelf.clone())
    }

    async fn recall(&self, _: &mut Scope<'_>, _: &ShippingMessage, _: &String, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Billing;

fn order_of(picked: &StockPicked) -> &u32 {
    &picked.order
}

#[saga]
#[subscribes(join(payments::Captured, StockPicked, by = [Billing::order, order_of]))]
impl Billing {
    #[step]
    async fn bill(&self, _: &mut Scope<'_>, _: &BillingMessage) -> Result<()> {
        Ok(())
    }

    fn order(captured: &payments::Captured) -> &u32 {
        &captured.order
    }
}

pub(crate) fn main() {
    assert_eq!(Shipping::DEFINITION.topic, "joins.dispatch", "the first name stays");
    assert_eq!(Billing::DEFINITION.topic, "joins.billing");
}
