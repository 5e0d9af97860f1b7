#![allow(unused)]
include!("../orders.rs");

mod at_not_in_the_block {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(at = noon)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(at = charge)]
        async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(at = "12:00")]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod at_returns_no_time {
    use super::*;

    use std::time::SystemTime;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(at = nothing)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(at = number)]
        async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(at = bare)]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn nothing(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn number(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<u64> {
            Ok(1)
        }

        async fn bare(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> SystemTime {
            SystemTime::now()
        }
    }
}

mod at_value_of_the_step {
    use super::*;

    use std::time::SystemTime;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(at = due)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
            Ok(Payment(1))
        }

        async fn due(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            paid: &Payment,
        ) -> Result<SystemTime> {
            Ok(SystemTime::now())
        }
    }
}

mod at_wrong_shape {
    use super::*;

    use std::time::SystemTime;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(at = opening)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(at = closing)]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        fn opening(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<SystemTime> {
            Ok(SystemTime::now())
        }

        async fn closing(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
        ) -> Result<SystemTime> {
            Ok(SystemTime::now())
        }
    }
}

fn main() {}
