#![allow(unused)]
include!("../orders.rs");

mod rollback_failure_by_value {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: Failure,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_failure_not_last {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = refund)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
            Ok(Payment(1))
        }

        async fn refund(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
            paid: &Payment,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_generic {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release<T>(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_is_a_step {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = charge)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_is_no_name {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = "release")]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(rollback = Self::release)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(rollback)]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_jumps {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
        ) -> Result<Next<CheckoutStep>> {
            Ok(Next::Repeat)
        }
    }
}

mod rollback_not_async {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        fn release(&self, scope: &mut Scope<'_>, order: &OrderPlaced, why: &Failure) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_not_in_the_block {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = relese)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
        ) -> Result<()> {
            Ok(())
        }

        #[step(rollback = refund)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_retry_without_rollback {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback_retry(max = 5))]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_returns_a_value {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
        ) -> Result<u32> {
            Ok(1)
        }
    }
}

mod rollback_returns_nothing {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release(&self, scope: &mut Scope<'_>, order: &OrderPlaced, why: &Failure) {
            drop(order)
        }
    }
}

mod rollback_value_of_nobody {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = refund)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
            Ok(Payment(1))
        }

        #[step(rollback = refund)]
        async fn tip(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<u32> {
            Ok(1)
        }

        async fn refund(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: &Payment,
            why: &Failure,
        ) -> Result<()> {
            Ok(())
        }

        async fn release(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            count: &u64,
            why: &Failure,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_value_of_two {
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
        async fn tip(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
            Ok(Payment(1))
        }

        #[step(rollback = refund)]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn refund(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: &Payment,
            why: &Failure,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_without_failure {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_without_message {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release(&self, scope: &mut Scope<'_>, why: &Failure) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_without_receiver {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release(scope: &mut Scope<'_>, order: &OrderPlaced, why: &Failure) -> Result<()> {
            Ok(())
        }
    }
}

mod rollback_without_scope {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = release)]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn release(&self, order: &OrderPlaced, why: &Failure) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
