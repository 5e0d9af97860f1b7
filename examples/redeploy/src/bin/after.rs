//! The next build: `inspect` was inserted, and `ship` is `dispatch` now.

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
    async fn inspect(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        takes_effect(scope, order.number, "inspect").await
    }

    #[step(was = "ship")]
    async fn dispatch(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
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
