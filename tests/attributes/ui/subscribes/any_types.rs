#![allow(unused)]
include!("../orders.rs");

#[derive(Message, Serialize, Deserialize)]
#[message(reply = u32)]
struct OrderChanged;

struct NoMessage;

mod no_message {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(any(OrderPlaced, NoMessage))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod one_type_under_two_names {
    use super::*;
    use super::OrderPlaced as Placed;

    struct Checkout;

    #[saga]
    #[subscribes(any(OrderPlaced, Placed))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod own_enum {
    use super::*;

    enum CheckoutMessage {}

    struct Checkout;

    #[saga]
    #[subscribes(any(OrderPlaced, OrderChanged))]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
            Ok(())
        }
    }
}

mod replies {
    use super::*;

    struct Checkout;

    #[saga]
    #[subscribes(any(OrderPlaced, OrderChanged))]
    impl Checkout {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, of: &CheckoutMessage) -> Result<()> {
            match of {
                CheckoutMessage::OrderPlaced(order) => scope.reply(order, 7),
                CheckoutMessage::OrderChanged(change) => scope.reply(change, "seven"),
            }
        }
    }

    struct Reply;

    #[saga]
    #[subscribes(any(OrderPlaced, OrderChanged))]
    impl Reply {
        #[step]
        async fn reserve(&self, scope: &mut Scope<'_>, of: &ReplyMessage) -> Result<()> {
            scope.reply(of, 7)
        }
    }
}

fn main() {}
