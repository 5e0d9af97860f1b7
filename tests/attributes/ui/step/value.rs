#![allow(unused)]
include!("../orders.rs");

mod value_by_value {
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
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: Payment) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn bill(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: &mut Payment,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod value_of_a_later_step {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: &Payment) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
            Ok(Payment(1))
        }
    }
}

mod value_of_a_missing_type {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: &Payment) -> Result<()> {
            Ok(())
        }
    }
}

mod value_of_itself {
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
            paid: &Payment,
        ) -> Result<Payment> {
            Ok(Payment(paid.0))
        }
    }
}

mod value_of_nobody {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Paymint;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
            Ok(Payment(1))
        }

        #[step]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: &Paymint) -> Result<()> {
            Ok(())
        }
    }
}

mod value_of_two {
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

        #[step]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: &Payment) -> Result<()> {
            Ok(())
        }
    }
}

mod value_optional_by_value {
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
        async fn weigh(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: Option<Payment>,
        ) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn ship(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: Option<&mut Payment>,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod value_optional_mixed_up {
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
        async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Option<u32>> {
            Ok(None)
        }

        #[step]
        async fn ship(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: &Option<Payment>,
            weight: Option<&u32>,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod value_optional_of_nobody {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(rollback = refund)]
        async fn charge(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: Option<&Payment>,
        ) -> Result<()> {
            Ok(())
        }

        async fn refund(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            count: Option<&u64>,
            why: &Failure,
        ) -> Result<()> {
            Ok(())
        }
    }
}

mod value_optional_of_two {
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
        async fn weigh(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: Option<&Payment>,
        ) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn tip(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
            Ok(Payment(1))
        }
    }
}

fn main() {}
