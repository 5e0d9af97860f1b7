#![allow(unused)]
include!("../orders.rs");

mod was_is_no_string {
    use super::*;

    struct Checkout;

    #[saga(was = checkout_v1)]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod was_its_own_name {
    use super::*;

    struct Checkout;

    #[saga(name = "checkout-v2", was = ["checkout", "checkout-v2"])]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod was_of_a_schedule {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(name = "reports", was = "nightly", every = "1h")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
