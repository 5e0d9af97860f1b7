#![allow(unused)]
include!("../orders.rs");

mod a_string {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes("orders.placed")]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod nothing_named {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod two_messages {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced, OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
