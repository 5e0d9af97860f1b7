#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[derive(Serialize, Deserialize)]
struct Payment(u32);

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(finally = close)]
    async fn charge(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
    ) -> Result<Next<CheckoutStep>> {
        Ok(Next::Repeat)
    }

    #[step(finally = close)]
    async fn weigh(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
    ) -> Result<With<CheckoutStep, Payment>> {
        Ok(Next::Repeat.with(Payment(1)))
    }

    #[step(finally = close, on_child_failure = again)]
    async fn pack(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(finally = close, on_child_failure = again)]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn close(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn again(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        failure: &Failure,
    ) -> Result<Next<CheckoutStep>> {
        Ok(Next::Repeat)
    }
}

fn main() {}
