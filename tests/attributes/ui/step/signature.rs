#![allow(unused)]
include!("../orders.rs");

mod conditional {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[cfg(unix)]
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod failure_in_a_step {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod generic {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve<T: Default>(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod impl_trait_parameter {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: &impl Serialize,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod lifetime {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve<'a>(&'a self, scope: &mut Scope<'_>, order: &'a OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod no_parameters {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self) -> Result<()> {
            Ok(())
        }
    }
}

mod not_async {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod parameters_in_another_order {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = refund)]
        async fn charge(&self, order: &OrderPlaced, scope: &mut Scope<'_>) -> Result<Payment> {
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

        #[step(rollback = recall)]
        async fn ship(&self, scope: &mut Scope<'_>, paid: &Payment, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn recall(&self, paid: Option<&Payment>, scope: &mut Scope<'_>) -> Result<()> {
            Ok(())
        }
    }
}

mod unsafe_or_extern {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async unsafe fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step]
        async extern "C" fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod where_clause {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()>
        where
            Self: Sized,
        {
            Ok(())
        }
    }
}

fn main() {}
