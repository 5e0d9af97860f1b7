#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(rollback = relese, retries = 5)]
    fn reserve(self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn release(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        why: &Failure,
    ) -> Result<()> {
        Ok(())
    }

    #[step(timeout = "soon")]
    async fn charge(&self, order: &OrderPlaced) -> Payment {
        Payment(1)
    }

    #[step(name = "reserve")]
    async fn ship(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        paid: &Payment,
    ) -> Result<Next<CheckoutStep>> {
        Ok(Next::goto(CheckoutStep::Charge))
    }
}

fn main() {
    fn provide<S: Saga>(_: S) {}
    provide(Checkout);
}
