//! A saga of a generic type, for one choice of its parameters: the fake in a test, for example.
#![deny(warnings)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[derive(Default)]
struct Stripe;

#[derive(Default)]
struct Checkout<P> {
    payments: P,
}

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout<Stripe> {
    #[step]
    async fn reserve(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        let Stripe = self.payments;
        Ok(())
    }
}

pub(crate) fn main() {
    assert_eq!(Checkout::<Stripe>::DEFINITION.saga, "checkout");
}
