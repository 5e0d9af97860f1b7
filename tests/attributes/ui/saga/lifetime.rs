#![allow(unused)]
include!("../orders.rs");

struct Checkout<'a> {
    currency: &'a str,
}

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout<'_> {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
