//! Sagas of a library, in which the crate `scoop` has another name. Each attribute is told that name.

use sagas::prelude::*;

/// A context key.
#[derive(ContextKey, Serialize, Deserialize)]
#[context(crate = sagas)]
pub struct Tenant(pub String);

/// A signal.
#[derive(Signal, Serialize, Deserialize)]
#[signal(crate = sagas, name = "library.paid")]
pub struct Paid {
    /// An amount.
    pub amount: i64,
}

/// An error with a code.
#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure(code = "library.none-left", crate = sagas)]
#[error("none left")]
pub struct NoneLeft;

/// A message.
#[derive(Message, Serialize, Deserialize)]
#[message(crate = sagas, topic = "library.orders", reply = u32)]
pub struct OrderPlaced {
    /// A number.
    pub order: u32,
}

/// An event.
#[derive(Message, Serialize, Deserialize)]
#[message(crate = ::sagas, topic = "library.reserved")]
pub struct Reserved {
    /// A number.
    pub units: i64,
}

/// An entity.
#[derive(Default, Serialize, Deserialize)]
pub struct Stock {
    units: i64,
}

#[entity(crate = sagas, name = "library.stock", key = u32)]
impl Stock {
    fn reserved(&mut self, event: &Reserved) {
        self.units -= event.units;
    }
}

/// A command.
#[derive(Serialize, Deserialize)]
pub struct Reserve {
    /// A number.
    pub units: i64,
}

#[command(entity = Stock, topic = "library.reserve", name = "library.reserve", crate = sagas)]
impl Reserve {
    fn key(&self) -> u32 {
        7
    }

    fn decide(&self, stock: &Stock) -> Decision<Reserved, ()> {
        match self.units <= stock.units + 9 {
            true => Decision::Accepted(Reserved { units: self.units }),
            false => Decision::Rejected(()),
        }
    }
}

/// A saga.
#[derive(Default)]
pub struct Checkout;

#[subscribes(OrderPlaced)]
#[saga(name = "library-checkout", crate = crate::facade::other)]
impl Checkout {
    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<u32> {
        scope.set(Tenant("library".into()))?;
        scope.launch(Reserve { units: i64::from(order.order) }).await?;
        Ok(order.order)
    }

    #[step]
    async fn check(&self, scope: &mut Scope<'_>, order: &OrderPlaced, reserved: &u32) -> Result<()> {
        let tenant = scope.get::<Tenant>()?.map(|tenant| tenant.0);
        match (less(*reserved), tenant.as_deref()) {
            (Ok(less), Some("library")) => scope.reply(order, less),
            (less, _) => Err(less.err().unwrap_or_else(|| NoneLeft.into())),
        }
    }

    async fn release(&self, _: &mut Scope<'_>, _: &OrderPlaced, reserved: &u32, why: &Failure) -> Result<()> {
        println!("{reserved}: {why}");
        Ok(())
    }
}

#[sagas::trace(crate = sagas)]
fn less(number: u32) -> Result<u32> {
    Ok(number.checked_sub(1).ok_or(NoneLeft)?)
}

/// A path to the crate through another one.
mod facade {
    pub(crate) use sagas as other;
}
