#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[derive(Serialize, Deserialize)]
struct Payment(u32);

#[derive(Serialize, Deserialize)]
struct Paymint;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<Payment> {
        Ok(Payment(1))
    }

    #[step]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced, paid: &Paymint) -> Result<()> {
        Ok(())
    }
}

fn main() {}
