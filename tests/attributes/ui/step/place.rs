#![allow(unused)]
include!("../orders.rs");

mod on_a_constant {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step]
        const FEE: u32 = 1;
    }
}

mod on_a_function {
    use super::*;

    #[step]
    async fn reserve(order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

mod on_a_struct {
    use super::*;

    #[step]
    struct Checkout;
}

mod on_a_trait {
    use super::*;

    #[step]
    trait Checkout {}
}

fn main() {}
