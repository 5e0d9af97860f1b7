#![allow(unused)]
include!("../orders.rs");

#[derive(Message, Serialize, Deserialize)]
struct OrderChanged;

mod nothing {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(any())]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod one_message {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(any(OrderPlaced))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod any_inside {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(any(OrderPlaced, any(OrderChanged, OrderPlaced)))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod twice {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(any(OrderPlaced, OrderChanged, OrderPlaced))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod two_types_of_one_name {
    use super::*;

    struct Checkout;

    mod v2 {
        use super::*;

        #[derive(Message, Serialize, Deserialize)]
        #[message(topic = "orders.placed.2")]
        pub struct OrderPlaced;
    }

    #[saga]
    #[subscribes(any(OrderPlaced, v2::OrderPlaced))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod named_like_the_enum {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    struct OrderMessage;

    struct Order;

    #[saga]
    #[subscribes(any(OrderPlaced, OrderMessage))]
    impl Order {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &OrderMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod without_any {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced, OrderChanged)]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod one_of_them_as_the_parameter {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(any(OrderPlaced, OrderChanged))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod no_types {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(any("orders.placed", OrderChanged))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod by_a_schedule {
    use super::*;

    struct Checkout;

    #[saga(every = "1h")]
    #[subscribes(any(OrderPlaced, Tick))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
