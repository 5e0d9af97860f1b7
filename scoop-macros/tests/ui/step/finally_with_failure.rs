#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(finally = close)]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn close(&self, scope: &mut Scope<'_>, order: &OrderPlaced, why: &Failure) -> Result<()> {
        Ok(())
    }
}

fn main() {}
