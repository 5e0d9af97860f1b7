#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
