#![allow(unused)]
include!("../orders.rs");

#[derive(Message, Serialize, Deserialize)]
struct OrderPaid {
    order: u32,
}

#[derive(Message, Serialize, Deserialize)]
struct OrderPicked {
    order: u32,
}

mod no_key {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, OrderPicked))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod one_message {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, by = order))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod any_inside {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, any(OrderPicked, OrderPlaced), by = order))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod twice {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, OrderPicked, OrderPaid, by = order))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod too_few_functions {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, OrderPicked, OrderPlaced, by = [paid, picked]))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod key_that_is_no_name {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, OrderPicked, by = "order"))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod unknown_setting {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, OrderPicked, by = order, whithin = "3 days"))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod bad_time {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, OrderPicked, by = order, within = "soon"))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod by_a_schedule {
    use super::*;

    struct Shipping;

    #[saga(every = "1h")]
    #[subscribes(join(OrderPaid, OrderPicked, by = order))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &ShippingMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod one_of_them_as_the_parameter {
    use super::*;

    struct Shipping;

    #[saga]
    #[subscribes(join(OrderPaid, OrderPicked, by = order))]
    impl Shipping {
        #[step]
        async fn ship(&self, _: &mut Scope<'_>, _: &OrderPaid, _: &OrderPicked) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
