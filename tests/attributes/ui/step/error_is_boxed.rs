#![allow(unused)]
include!("../orders.rs");

struct Checkout;

fn read() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Ok(())
}

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        read()?;
        Err(read().unwrap_err().into())
    }
}

fn main() {}
