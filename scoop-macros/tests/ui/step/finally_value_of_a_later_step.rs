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
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
        Ok(Payment(1))
    }

    async fn close(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        paid: &Payment,
    ) -> Result<()> {
        Ok(())
    }
}

fn main() {}
