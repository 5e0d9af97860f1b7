#![allow(unused)]
include!("../orders.rs");

mod on_a_function {
    use super::*;

    #[saga]
    async fn checkout(order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

mod on_a_struct {
    use super::*;

    #[saga]
    #[subscribes(OrderPlaced)]
    pub struct Checkout;
}

mod on_a_trait {
    use super::*;

    #[saga]
    trait Checkout {
        fn total(&self) -> u32;
    }
}

mod on_a_trait_impl {
    use super::*;

    #[allow(async_fn_in_trait)]
    trait Reserve {
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()>;
    }

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Reserve for Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
