#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(awaits(Payment, by = order_key))]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn order_key(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<String> {
        Ok(String::new())
    }
}

fn main() {}
