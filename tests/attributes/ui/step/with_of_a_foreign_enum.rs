#![allow(unused)]
include!("../orders.rs");

enum ShippingStep {}

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn charge(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
    ) -> Result<With<ShippingStep, Payment>> {
        Err(Error::msg("never called"))
    }

    #[step]
    async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<With<Payment>> {
        Err(Error::msg("never called"))
    }

    #[step]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<With<CheckoutStep>> {
        Err(Error::msg("never called"))
    }
}

fn main() {}
