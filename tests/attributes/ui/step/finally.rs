#![allow(unused)]
include!("../orders.rs");

mod finally_jumps {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(finally = close)]
        async fn charge(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
        ) -> Result<Next<CheckoutStep>> {
            Ok(Next::Repeat)
        }

        #[step(finally = close)]
        async fn weigh(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
        ) -> Result<With<CheckoutStep, Payment>> {
            Ok(Next::Repeat.with(Payment(1)))
        }

        #[step(finally = close, on_child_failure = again)]
        async fn pack(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(finally = close, on_child_failure = again)]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn close(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn again(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            failure: &Failure,
        ) -> Result<Next<CheckoutStep>> {
            Ok(Next::Repeat)
        }
    }
}

mod finally_not_in_the_block {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(finally = close)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(finally = charge)]
        async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(finally = "tidy")]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(finally = tidi)]
        async fn thank(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn tidy(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod finally_returns_a_value {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(finally = close)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(finally = jump)]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn close(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<u32> {
            Ok(1)
        }

        async fn jump(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Next<CheckoutStep>> {
            Ok(Next::Repeat)
        }
    }
}

mod finally_value_of_a_later_step {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(finally = close)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
            Ok(Payment(1))
        }

        async fn close(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: &Payment,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod finally_value_of_the_step {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(finally = close)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
            Ok(Payment(1))
        }

        async fn close(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: &Payment,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod finally_with_failure {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(finally = close)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn close(&self, scope: &mut Scope<'_>, order: &OrderPlaced, why: &Failure) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
