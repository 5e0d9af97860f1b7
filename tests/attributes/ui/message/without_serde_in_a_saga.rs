#![allow(unused)]
use scoop::prelude::*;

#[derive(Message)]
struct OrderPlaced {
    order: u32,
}

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, placed: &OrderPlaced) -> Result<()> {
        scope.launch(OrderPlaced { order: placed.order }).await?;
        Ok(())
    }
}

async fn launch(scoop: &Scoop) -> Result<()> {
    scoop.launch(OrderPlaced { order: 7 }).await?;
    Ok(())
}

fn main() {}
