#![allow(unused)]
use scoop::prelude::*;
use std::time::SystemTime;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(at = opening)]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(at = closing)]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    fn opening(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<SystemTime> {
        Ok(SystemTime::now())
    }

    async fn closing(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        why: &Failure,
    ) -> Result<SystemTime> {
        Ok(SystemTime::now())
    }
}

fn main() {}
