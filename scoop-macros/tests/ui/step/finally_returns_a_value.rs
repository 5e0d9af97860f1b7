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

    #[step(finally = jump)]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn close(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<u32> {
        Ok(1)
    }

    async fn jump(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Next<CheckoutStep>> {
        Ok(Next::Repeat)
    }
}

fn main() {}
