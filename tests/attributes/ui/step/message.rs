#![allow(unused)]
include!("../orders.rs");

mod message_by_value {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod message_missing {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
            Ok(Payment(1))
        }

        #[step]
        async fn ship(&self, scope: &mut Scope<'_>) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn bill(&self, scope: &mut Scope<'_>, paid: &Payment) -> Result<()> {
            Ok(())
        }
    }
}

mod message_of_another_type {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &Payment) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
