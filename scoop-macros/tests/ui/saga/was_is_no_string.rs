#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga(was = checkout_v1)]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
