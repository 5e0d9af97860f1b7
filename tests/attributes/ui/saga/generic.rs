#![allow(unused)]
include!("../orders.rs");

struct Checkout<P> {
    payments: P,
}

#[saga]
#[subscribes(OrderPlaced)]
impl<P: Send + Sync + 'static> Checkout<P> {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
