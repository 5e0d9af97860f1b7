//! Types that came through another macro, which the compiler wraps in invisible delimiters.
#![deny(warnings)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

macro_rules! checkout {
    ($saga:ident, $message:ty, $value:ty) => {
        struct $saga;

        #[saga]
        #[subscribes($message)]
        impl $saga {
            #[step(rollback = refund)]
            async fn charge(&self, _: &mut Scope<'_>, _: &$message) -> Result<$value> {
                Ok(Default::default())
            }

            async fn refund(
                &self,
                _: &mut Scope<'_>,
                _: &$message,
                paid: &$value,
                _: &Failure,
            ) -> Result<()> {
                println!("{paid}");
                Ok(())
            }
        }
    };
}

checkout!(Checkout, OrderPlaced, u32);

pub(crate) fn main() {
    assert_eq!(Checkout::DEFINITION.topic, "order-placed");
    let _ = Checkout;
}
