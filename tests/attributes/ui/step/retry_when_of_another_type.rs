#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(retry(max = 5, when = by_value))]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(retry(max = 5, when = says_how_often))]
    async fn weigh(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(retry(max = 5, when = self::of_nothing))]
    async fn ship(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    fn by_value(error: Error) -> bool {
        true
    }

    fn says_how_often(error: &Error) -> u32 {
        5
    }
}

fn of_nothing() -> bool {
    true
}

fn main() {}
