#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Next<CheckoutStep>> {
        Ok(Next::goto(CheckoutStep::Shop))
    }
}

fn main() {}
