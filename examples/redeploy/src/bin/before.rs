//! The build that is deployed first.

use redeploy::{Delivery, Order, Pick, takes_effect};
use scoop::prelude::*;

#[derive(Default)]
struct Checkout;

#[saga(name = "checkout")]
#[subscribes(Order)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        takes_effect(scope, order.number, "reserve").await?;
        scope.launch(Pick { number: order.number }).await?;
        scope.launch(Pick { number: order.number }).await?;
        Ok(())
    }

    #[step(sleep = "400ms")]
    async fn charge(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        takes_effect(scope, order.number, "charge").await
    }

    #[step]
    async fn ship(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        takes_effect(scope, order.number, "ship").await?;
        scope.launch(Delivery { number: order.number }).await?;
        Ok(())
    }

    #[step]
    async fn close(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        takes_effect(scope, order.number, "close").await
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    redeploy::serve().await
}
