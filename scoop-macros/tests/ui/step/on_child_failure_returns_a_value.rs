#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(on_child_failure = pay_later)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn pay_later(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        failure: &Failure,
    ) -> Result<u32> {
        Ok(1)
    }
}

fn main() {}
