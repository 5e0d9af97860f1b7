#![allow(unused)]
use scoop::prelude::*;
use std::time::SystemTime;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(at = nothing)]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(at = number)]
    async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(at = bare)]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn nothing(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn number(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<u64> {
        Ok(1)
    }

    async fn bare(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> SystemTime {
        SystemTime::now()
    }
}

fn main() {}
