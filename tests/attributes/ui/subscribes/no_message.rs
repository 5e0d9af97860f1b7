#![allow(unused)]
use scoop::prelude::*;

#[derive(Serialize, Deserialize)]
struct Order;

struct Checkout;

#[saga]
#[subscribes(Order)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        Ok(())
    }
}

fn main() {}
