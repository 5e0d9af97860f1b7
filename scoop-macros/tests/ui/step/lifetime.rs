#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn reserve<'a>(&'a self, scope: &mut Scope<'_>, order: &'a OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
