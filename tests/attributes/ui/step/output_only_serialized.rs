#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[derive(Serialize)]
struct Payment(u32);

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
        Ok(Payment(1))
    }
}

fn main() {}
