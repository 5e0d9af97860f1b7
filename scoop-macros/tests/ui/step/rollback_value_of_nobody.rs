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
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
        Ok(Payment(1))
    }

    #[step(rollback = refund)]
    async fn tip(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<u32> {
        Ok(1)
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

    async fn release(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        count: &u64,
        why: &Failure,
    ) -> Result<()> {
        Ok(())
    }
}

fn main() {}
