#![allow(unused)]
include!("../orders.rs");

struct OutOfStock;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Err(OutOfStock)?;
        Ok(())
    }
}

fn main() {}
