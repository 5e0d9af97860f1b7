#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(was = "reserve")]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(was = ["charge", "charge"])]
    async fn pay(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
