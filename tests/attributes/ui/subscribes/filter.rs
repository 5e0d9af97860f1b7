#![allow(unused)]
include!("../orders.rs");

mod nothing {
    use super::*;

    struct Queue;

    #[saga]
    #[subscribes(Failed())]
    impl Queue {
        #[step]
        async fn read(&self, _: &mut Scope<'_>, _: &Failed) -> Result<()> {
            Ok(())
        }
    }
}

mod unknown_key {
    use super::*;

    struct Queue;

    #[saga]
    #[subscribes(Failed(topic = "orders.placed"))]
    impl Queue {
        #[step]
        async fn read(&self, _: &mut Scope<'_>, _: &Failed) -> Result<()> {
            Ok(())
        }
    }
}

mod unknown_outcome {
    use super::*;

    struct Queue;

    #[saga]
    #[subscribes(Failed(outcome = "rolledback"))]
    impl Queue {
        #[step]
        async fn read(&self, _: &mut Scope<'_>, _: &Failed) -> Result<()> {
            Ok(())
        }
    }
}

mod a_number {
    use super::*;

    struct Queue;

    #[saga]
    #[subscribes(Failed(saga = 7))]
    impl Queue {
        #[step]
        async fn read(&self, _: &mut Scope<'_>, _: &Failed) -> Result<()> {
            Ok(())
        }
    }
}

mod a_long_name {
    use super::*;

    struct Queue;

    #[saga]
    #[subscribes(Failed(saga = "reserve-the-stock-of-an-order-for-shipping", outcome = "rollback_failed"))]
    impl Queue {
        #[step]
        async fn read(&self, _: &mut Scope<'_>, _: &Failed) -> Result<()> {
            Ok(())
        }
    }
}

mod among_others {
    use super::*;

    struct Queue;

    #[saga]
    #[subscribes(any(OrderPlaced, Failed(outcome = "stuck")))]
    impl Queue {
        #[step]
        async fn read(&self, _: &mut Scope<'_>, _: &QueueMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod own_topic {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "scoop.failed")]
    struct MyFailed;
}

fn main() {}
