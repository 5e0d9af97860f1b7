#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn charge(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
    ) -> Result<With<CheckoutStep, ()>> {
        Ok(Next::Repeat.with(()))
    }

    #[step]
    async fn weigh(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
    ) -> Result<With<CheckoutStep, Next<CheckoutStep>>> {
        Err(Error::msg("never called"))
    }

    #[step]
    async fn ship(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
    ) -> Result<With<CheckoutStep, impl Serialize>> {
        Ok(Next::Repeat.with(5))
    }
}

fn main() {}
