#![allow(unused)]
include!("../orders.rs");

struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    async fn release(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
        why: &Failure,
    ) -> Result<()> {
        let total = std::rc::Rc::new(1);
        scope.launch(OrderPlaced).await?;
        drop(total);
        Ok(())
    }
}

fn main() {}
