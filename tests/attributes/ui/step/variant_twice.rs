#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn charge_card(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn charge__card(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
