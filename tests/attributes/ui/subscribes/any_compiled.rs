#![allow(unused)]
include!("../orders.rs");

#[derive(Message, Serialize, Deserialize)]
struct OrderChanged;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "order-placed")]
struct AlsoPlaced;

struct NoMessage;

mod one_topic {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(any(OrderChanged, OrderPlaced, AlsoPlaced))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod ticks {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(any(OrderPlaced, Tick))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
