#![allow(unused)]
include!("../orders.rs");

mod with_in_a_handler {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = undo, on_child_failure = again)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn undo(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
        ) -> Result<With<CheckoutStep, u32>> {
            Ok(Next::Repeat.with(1))
        }

        async fn again(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
        ) -> Result<With<CheckoutStep, u32>> {
            Ok(Next::Repeat.with(1))
        }
    }
}

mod with_no_value {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn charge(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
        ) -> Result<With<CheckoutStep, ()>> {
            Ok(Next::Repeat.with(()))
        }

        #[step]
        async fn weigh(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
        ) -> Result<With<CheckoutStep, Next<CheckoutStep>>> {
            Err(Error::msg("never called"))
        }

        #[step]
        async fn ship(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
        ) -> Result<With<CheckoutStep, impl Serialize>> {
            Ok(Next::Repeat.with(5))
        }
    }
}

fn main() {}
