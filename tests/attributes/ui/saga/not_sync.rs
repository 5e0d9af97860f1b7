#![allow(unused)]
include!("../orders.rs");

struct Checkout {
    total: std::cell::Cell<u32>,
}

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
