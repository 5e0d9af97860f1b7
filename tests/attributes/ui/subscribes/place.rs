#![allow(unused)]
include!("../orders.rs");

mod above_and_below {
    use super::*;

    struct Checkout;

    #[subscribes(OrderPlaced)]
    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod missing {
    use super::*;

    struct Checkout;

    #[saga]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod on_a_function {
    use super::*;

    #[subscribes(OrderPlaced)]
    fn on_order(order: &OrderPlaced) {}
}

mod on_a_struct {
    use super::*;

    #[subscribes(OrderPlaced)]
    struct Checkout;
}

mod twice {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod without_saga {
    use super::*;

    struct Checkout;

    #[subscribes(OrderPlaced)]
    impl Checkout {
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
