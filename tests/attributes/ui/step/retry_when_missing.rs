#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(retry(max = 5, when = is_transient))]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
