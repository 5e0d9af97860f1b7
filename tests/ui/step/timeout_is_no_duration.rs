#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(timeout = "5 seconds")]
    async fn a(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(timeout = "0s")]
    async fn b(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(timeout = "99999999999999999999d")]
    async fn c(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(timeout = 30)]
    async fn d(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(timeout = "")]
    async fn e(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

fn main() {}
