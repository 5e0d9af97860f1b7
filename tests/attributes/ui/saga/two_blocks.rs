#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn reserve(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<Next<CheckoutStep>> {
        Ok(Next::GoTo(CheckoutStep::Reserve))
    }
}

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(timeout = "1s")]
    async fn charge(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<u32> {
        Ok(7)
    }
}

fn main() {}
