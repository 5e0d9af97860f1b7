#![allow(unused)]
include!("../orders.rs");

struct Weight;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn charge(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
    ) -> Result<With<CheckoutStep, Weight>> {
        Ok(Next::Repeat.with(Weight))
    }
}

fn main() {}
