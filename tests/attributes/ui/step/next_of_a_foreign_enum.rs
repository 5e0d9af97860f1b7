#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Next<RefundStep>> {
        Ok(Next::Continue)
    }

    #[step]
    async fn bill(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Next> {
        Ok(Next::Continue)
    }
}

fn main() {}
