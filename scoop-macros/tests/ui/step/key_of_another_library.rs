#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga(timezone = "UTC", interval = "1h")]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(retries = 5, timeouts = "30s", compensate = undo)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(compensation = undo, on_failure = undo, delay = "2 days")]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(undo = undo, after = "2 days", retry(times = 5, delay = "1s"))]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn undo(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
