#![allow(unused)]
include!("../orders.rs");

mod on_child_failure_goto_a_foreign_enum {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(on_child_failure = pay_later)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn pay_later(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            failure: &Failure,
        ) -> Result<Next<RefundStep>> {
            Ok(Next::Continue)
        }
    }
}

mod on_child_failure_is_a_step {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(on_child_failure = reserve)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod on_child_failure_not_in_the_block {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(on_child_failure = pay_later)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod on_child_failure_returns_a_value {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(on_child_failure = pay_later)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn pay_later(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            failure: &Failure,
        ) -> Result<u32> {
            Ok(1)
        }
    }
}

mod on_child_failure_without_failure {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(on_child_failure = pay_later)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn pay_later(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
