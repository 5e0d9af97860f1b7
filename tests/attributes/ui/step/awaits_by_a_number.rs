#![allow(unused)]
include!("../orders.rs");

#[derive(Signal, Serialize, Deserialize)]
struct Paid(u32);

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(awaits(Paid, by = order_key))]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: &Paid) -> Result<()> {
        Ok(())
    }

    async fn order_key(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<i64> {
        Ok(7)
    }
}

fn main() {}
