//! The order of the two attributes does not matter, nor does the path they are written with.
use scoop::{Message, Result, Saga, Scope};

mod orders {
    #[derive(scoop::Message, serde::Serialize, serde::Deserialize)]
    pub(crate) struct OrderPlaced;
}

struct Checkout;

#[scoop::subscribes(orders::OrderPlaced)]
#[scoop::saga]
impl Checkout {
    #[scoop::step]
    async fn reserve(&self, _: &mut Scope<'_>, _: &orders::OrderPlaced) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn main() {
    assert_eq!(<orders::OrderPlaced as Message>::TOPIC, "order-placed");
    assert_eq!(Checkout::DEFINITION.saga, "checkout");
    assert_eq!(Checkout::DEFINITION.topic, "order-placed");
}
