#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Err("out of stock")?;
        Ok(())
    }

    #[step]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        price("7").map_err(|error| format!("no price: {error}"))?;
        Ok(())
    }
}

fn price(text: &str) -> std::result::Result<u32, std::num::ParseIntError> {
    text.parse()
}

fn main() {}
