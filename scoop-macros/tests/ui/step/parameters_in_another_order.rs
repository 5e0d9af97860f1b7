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
    #[step(rollback = refund)]
    async fn charge(&self, order: &OrderPlaced, scope: &mut Scope<'_>) -> Result<Payment> {
        Ok(Payment(1))
    }

    async fn refund(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        why: &Failure,
        paid: &Payment,
    ) -> Result<()> {
        Ok(())
    }

    #[step(rollback = recall)]
    async fn ship(&self, scope: &mut Scope<'_>, paid: &Payment, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn recall(&self, paid: Option<&Payment>, scope: &mut Scope<'_>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
