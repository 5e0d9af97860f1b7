#![allow(unused)]
include!("../orders.rs");

mod another_message {
    use super::*;

    #[derive(Default)]
    struct Queue;

    #[saga]
    #[subscribes(OrderPlaced(outcome = "stuck"))]
    impl Queue {
        #[step]
        async fn read(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
            Ok(())
        }
    }
}

mod no_saga {
    use super::*;

    #[derive(Default)]
    struct Queue;

    #[saga]
    #[subscribes(Failed(saga = OrderPlaced))]
    impl Queue {
        #[step]
        async fn read(&self, _: &mut Scope<'_>, _: &Failed) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
