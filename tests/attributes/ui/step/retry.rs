#![allow(unused)]
include!("../orders.rs");

mod retry_backoff_is_no_range {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(retry(max = 5, backoff = "30s..100ms"))]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 5, backoff = "100ms.."))]
        async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 5, backoff = "1s..2 fortnights"))]
        async fn pack(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 5, backoff = 100))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod retry_is_no_list {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(retry)]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry = 5)]
        async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(5))]
        async fn pack(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max 5))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod retry_jitter_is_no_share {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(retry(max = 5, jitter = 1.1))]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 5, jitter = 20))]
        async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 5, jitter = -0.2))]
        async fn pack(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 5, jitter = 0.125))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod retry_max_is_no_number {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(retry(max = 0))]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 1000001))]
        async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = -1))]
        async fn pack(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = "5"))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod retry_unknown_key {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(retry(max = 5, backof = "1s"))]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(times = 5))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 5, max = 6))]
        async fn thank(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod retry_when_of_another_shape {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(retry(max = 5, when = is_async))]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 5, when = is_method))]
        async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 5, when = |error| true))]
        async fn pack(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(max = 5, when = "is_busy"))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn is_async(error: &Error) -> bool {
            true
        }

        fn is_method(&self, error: &Error) -> bool {
            true
        }
    }
}

mod retry_without_max {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(retry())]
        async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(retry(backoff = "1s"), rollback = refund, rollback_retry(jitter = 0.1))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn refund(
            &self,
            scope: &mut Scope<'_>,
            order: &OrderPlaced,
            why: &Failure,
        ) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
