#![allow(unused)]
use scoop::prelude::*;
use std::time::SystemTime;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(at = opening, finally = close)]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(name = "charge (finally)")]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(name = "charge (waiting for scheduled time)")]
    async fn thank(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn opening(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<SystemTime> {
        Ok(SystemTime::now())
    }

    async fn close(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
