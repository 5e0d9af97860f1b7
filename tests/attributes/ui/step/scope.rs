#![allow(unused)]
include!("../orders.rs");

mod scope_missing {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod scope_of_another_type {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut u32, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod scope_shared {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
