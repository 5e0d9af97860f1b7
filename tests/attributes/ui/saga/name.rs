#![allow(unused)]
include!("../orders.rs");

mod name_empty {
    use super::*;

    struct Checkout;

    #[saga(name = "")]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod name_is_no_string {
    use super::*;

    struct Checkout;

    #[saga(name)]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod name_too_long {
    use super::*;

    struct Checkout;

    #[saga(
        name = "checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-checkout-x"
    )]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod name_too_long_for_a_schedule {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(every = "1h", name = "a-report-of-everything-that-happened-since-the-last-such-report")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
