//! A saga of several messages: the functions take an enum of them.
#![deny(warnings)]
use self::changes::{OrderChanged as Changed, Withdrawn};
use scoop::prelude::*;

/// Messages that other programs know, too.
pub mod changes {
    use scoop::prelude::*;

    /// An order that differs now.
    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "orders.changed", reply = u32)]
    pub struct OrderChanged {
        /// The order.
        pub order: u32,
    }

    /// An order of no customer.
    #[derive(Message, Serialize, Deserialize)]
    pub enum Withdrawn {
        /// It was a mistake.
        Mistake,
    }
}

mod orders {
    use scoop::prelude::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "orders.placed", replies = String)]
    pub(super) struct OrderPlaced;
}

#[derive(Default)]
struct Checkout;

#[saga(name = "checkout", was = "orders")]
#[subscribes(any(orders::OrderPlaced, Changed, Withdrawn,))]
impl Checkout {
    #[step(rollback = release, on_child_failure = accept, finally = close)]
    async fn reserve(&self, scope: &mut Scope<'_>, of: &CheckoutMessage) -> Result<u32> {
        match of {
            CheckoutMessage::OrderPlaced(order) => {
                scope.reply(order, "reserved".into())?;
                scope.reply(order, "twice".into())?;
                Ok(0)
            }
            CheckoutMessage::Changed(change) => {
                scope.reply(change, change.order)?;
                Ok(change.order)
            }
            CheckoutMessage::Withdrawn(Withdrawn::Mistake) => Ok(7),
        }
    }

    #[step]
    async fn ship(&self, _: &mut Scope<'_>, _: &CheckoutMessage, _: &u32) -> Result<Next<CheckoutStep>> {
        Ok(Next::Continue)
    }

    async fn release(&self, _: &mut Scope<'_>, _: &CheckoutMessage, _: &u32, _: &Failure) -> Result<()> {
        Ok(())
    }

    async fn accept(&self, _: &mut Scope<'_>, _: &CheckoutMessage, _: &u32, _: &Failure) -> Result<()> {
        Ok(())
    }

    async fn close(&self, _: &mut Scope<'_>, _: &CheckoutMessage) -> Result<()> {
        Ok(())
    }
}

mod in_a_function {
    use scoop::prelude::*;

    #[allow(clippy::items_after_statements)]
    pub(super) fn topic() -> String {
        #[derive(Message, Serialize, Deserialize)]
        struct Opened(u32);

        #[derive(Message, Serialize, Deserialize)]
        struct Closed;

        #[derive(Default)]
        struct Gate;

        #[saga]
        #[scoop::subscribes(any(Opened, Closed))]
        impl Gate {
            #[step]
            async fn log(&self, _: &mut Scope<'_>, of: &GateMessage) -> Result<()> {
                match of {
                    GateMessage::Opened(_) | GateMessage::Closed(_) => Ok(()),
                }
            }
        }
        Gate::DEFINITION.topic.into()
    }
}

pub(crate) fn main() {
    assert_eq!(Checkout::DEFINITION.topic, "orders.placed", "the first one");
    let message = CheckoutMessage::from(Changed { order: 3 });
    assert!(matches!(message, CheckoutMessage::Changed(change) if change.order == 3));
    assert_eq!(in_a_function::topic(), "opened");
}
