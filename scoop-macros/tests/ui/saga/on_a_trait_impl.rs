#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[allow(async_fn_in_trait)]
trait Reserve {
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()>;
}

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Reserve for Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
