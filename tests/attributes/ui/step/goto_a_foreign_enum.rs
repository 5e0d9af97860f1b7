#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Next<CheckoutStep>> {
        Ok(Next::goto(RefundStep::Ask))
    }
}

struct Refund;

#[saga]
#[subscribes(OrderPlaced)]
impl Refund {
    #[step]
    async fn ask(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
