#![allow(unused)]
include!("../orders.rs");

mod without_parentheses {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(launches)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(launches = OrderPlaced)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod a_text_for_a_type {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(launches("orders"))]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod a_message_twice {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(launches(OrderPlaced, OrderPlaced))]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
