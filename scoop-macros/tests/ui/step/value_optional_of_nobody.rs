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
    async fn charge(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        paid: Option<&Payment>,
    ) -> Result<()> {
        Ok(())
    }

    async fn refund(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        count: Option<&u64>,
        why: &Failure,
    ) -> Result<()> {
        Ok(())
    }
}

fn main() {}
