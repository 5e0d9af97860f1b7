#![allow(unused)]
include!("../orders.rs");

mod receiver_by_value {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod receiver_missing {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod receiver_mutable {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&mut self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod receiver_typed {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(
            self: std::sync::Arc<Self>,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
        ) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
