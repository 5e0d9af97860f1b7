#![allow(unused)]
include!("../orders.rs");

struct NoMessage;

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(launches(OrderPlaced, NoMessage))]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
