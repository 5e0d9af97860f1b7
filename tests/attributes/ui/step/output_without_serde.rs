#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Payment(u32);

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(rollback = refund)]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
        Ok(Payment(1))
    }

    async fn refund(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        paid: &Payment,
        why: &Failure,
    ) -> Result<()> {
        Ok(())
    }
}

fn main() {}
