#![allow(unused)]
include!("../orders.rs");

#[derive(Signal, Serialize, Deserialize)]
struct Paid(u32);

mod awaits_written_wrong {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(awaits = Paid)]
        async fn one(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(awaits())]
        async fn two(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(awaits(Paid))]
        async fn three(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(awaits("paid", by = order_key))]
        async fn four(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(awaits(Paid, by = order_key, within = "soon"))]
        async fn five(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(awaits(Paid, by = order_key, until = "noon"))]
        async fn six(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn order_key(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<String> {
            Ok(String::new())
        }
    }
}

mod awaits_within_without_by {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(awaits(Paid, within = "1 day"))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: Option<&Paid>) -> Result<()> {
            Ok(())
        }
    }
}

mod awaits_a_time_and_a_signal {
    use super::*;

    use std::time::SystemTime;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(at = noon, awaits(Paid, by = order_key))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn noon(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<SystemTime> {
            Ok(SystemTime::now())
        }

        async fn order_key(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<String> {
            Ok(String::new())
        }
    }
}

mod awaits_by_no_key {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(awaits(Paid, by = nothing))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(awaits(Paid, by = missing))]
        async fn send(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        async fn nothing(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod key_of_a_signal_written_as_that_of_a_limit {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(awaits(Paid, by = order_key))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        fn order_key(&self, order: &OrderPlaced) -> String {
            String::new()
        }
    }
}

mod awaited_signal_as_a_parameter {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step]
        async fn early(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: &Paid) -> Result<()> {
            Ok(())
        }

        #[step(awaits(Paid, by = order_key, within = "2 days"))]
        async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: &Paid) -> Result<()> {
            Ok(())
        }

        async fn order_key(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<String> {
            Ok(String::new())
        }
    }
}

mod signal_awaited_twice {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(OrderPlaced)]
    impl Checkout {
        #[step(awaits(Paid, by = order_key))]
        async fn one(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
            Ok(())
        }

        #[step(awaits(Paid, by = order_key))]
        async fn two(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: &Paid) -> Result<()> {
            Ok(())
        }

        async fn order_key(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<String> {
            Ok(String::new())
        }
    }
}

fn main() {}
