#![allow(unused)]
include!("../orders.rs");

mod argument_is_no_key {
    use super::*;

    struct Checkout;

    #[saga("checkout")]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod repeated {
    use super::*;

    struct Checkout;

    #[saga(name = "checkout", name = "check-out")]
    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod schedule_settings_without_schedule {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    struct Order;

    #[derive(Default)]
    struct Report;

    #[saga(zone = "UTC", missed = "all", overlap = "skip")]
    #[subscribes(Order)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
            Ok(())
        }
    }
}

mod unknown_key {
    use super::*;

    struct Checkout;

    #[saga(naem = "checkout")]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
