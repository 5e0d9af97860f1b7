//! An order: a parcel is reserved and sent. When the courier fails, the reservation is undone.

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.placed")]
pub struct OrderPlaced {
    pub order: u32,
    pub city: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "courier.book")]
pub struct BookCourier {
    pub order: u32,
    pub city: String,
}

#[derive(Default)]
pub struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, placed: &OrderPlaced) -> Result<()> {
        // Statements through `scope.tx().await?` commit together with the step and with this launch. A step with such statements
        // has no database in memory: test it on `.embedded()`, with the feature `embedded`.
        scope.launch(BookCourier { order: placed.order, city: placed.city.clone() }).await?;
        Ok(())
    }

    async fn release(&self, _: &mut Scope<'_>, placed: &OrderPlaced, why: &Failure) -> Result<()> {
        println!("order {} is released: {}", placed.order, why.report());
        Ok(())
    }

    /// Begins when all handlers of `BookCourier` have finished.
    #[step]
    async fn confirm(&self, _: &mut Scope<'_>, placed: &OrderPlaced) -> Result<()> {
        println!("order {} is on its way", placed.order);
        Ok(())
    }
}

#[derive(Default)]
pub struct Courier;

#[saga]
#[subscribes(BookCourier)]
impl Courier {
    #[step]
    async fn book(&self, _: &mut Scope<'_>, booking: &BookCourier) -> Result<()> {
        match &*booking.city {
            "Atlantis" => Err(Error::msg("no courier goes to Atlantis")),
            _ => Ok(()),
        }
    }
}
