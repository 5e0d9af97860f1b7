#![allow(unused)]
use scoop::prelude::*;
use std::time::SystemTime;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[derive(Serialize, Deserialize)]
struct Payment(u32);

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(at = due)]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
        Ok(Payment(1))
    }

    async fn due(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        paid: &Payment,
    ) -> Result<SystemTime> {
        Ok(SystemTime::now())
    }
}

fn main() {}
