#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
