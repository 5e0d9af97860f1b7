#![allow(unused)]
include!("../orders.rs");

#[derive(Message, Serialize, Deserialize)]
struct OrderPaid {
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
struct OrderPicked {
    order: String,
}

mod keys_of_two_types {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, OrderPicked, by = order))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod missing_field {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, OrderPlaced, by = order))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod no_message {
    use super::*;

    struct Picked {
        order: u32,
    }

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, Picked, by = order))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
