//! A function of the block that takes a scope may be a helper of the others.

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        self.note(scope, "reserved").await
    }

    async fn release(&self, scope: &mut Scope<'_>, _: &OrderPlaced, _: &Failure) -> Result<()> {
        Self::note(self, scope, "released").await
    }

    async fn note(&self, scope: &mut Scope<'_>, what: &str) -> Result<()> {
        println!("{what} by {}", scope.handler());
        Ok(())
    }
}

pub(crate) fn main() {
    assert_eq!(Checkout::DEFINITION.steps.len(), 1);
}
