//! All parts of a saga at once, in a crate that is strict about its own code.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub, clippy::all)]

use scoop::prelude::*;

/// The message.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.placed")]
pub struct OrderPlaced {
    order: u32,
}

/// The amount charged to a card.
#[derive(Serialize, Deserialize)]
pub struct Payment(u32);

/// A type with two parameters is as good as any.
pub type Parcels = Vec<(u32, Option<String>)>;

/// A dependency.
pub struct Payments;

/// The saga, with a dependency: not `Default`.
pub struct Checkout {
    payments: Payments,
}

#[saga(name = "checkout-v2")]
#[subscribes(OrderPlaced)]
impl Checkout {
    #![allow(clippy::unused_async)]

    /// A constant among the steps is no trouble.
    const FEE: u32 = 1;

    #[step(rollback = undo, delivery = "at_least_once")]
    async fn reserve(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(rollback = refund, on_child_failure = pay_later, name = "charge-card", timeout = "30s", launches(OrderPlaced))]
    async fn charge(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> scoop::Result<Payment> {
        scope.launch(OrderPlaced { order: order.order }).await?;
        let Payments = self.payments;
        Ok(Payment(order.order + Self::FEE))
    }

    #[step(rollback = undo, on_child_failure = ignore, delivery = "at_most_once")]
    async fn r#try(
        &self,
        scope: &mut Scope<'_>,
        message: &OrderPlaced,
        failure: &Payment,
    ) -> std::result::Result<Parcels, Error> {
        Ok(vec![(
            message.order + failure.0,
            Some(scope.idempotency_key().to_string()),
        )])
    }

    #[step]
    async fn ship(
        &self,
        scope: &mut scoop::Scope<'_>,
        order: &self::OrderPlaced,
        Payment(paid): &Payment,
        parcels: &Parcels,
    ) -> Result<Next<CheckoutStep>> {
        Ok(match scope.iteration() {
            0 if order.order == *paid => Next::goto(CheckoutStep::Try),
            1 if parcels.is_empty() => Next::Repeat,
            _ => Next::Continue,
        })
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &OrderPlaced, _: &Failure) -> Result<()> {
        Ok(())
    }

    async fn refund(
        &self,
        _: &mut Scope<'_>,
        _: &OrderPlaced,
        paid: &Payment,
        why: &Failure,
    ) -> Result<()> {
        Err(Error::msg(format!("{}: {}", paid.0, why)))
    }

    async fn pay_later(
        &self,
        _: &mut Scope<'_>,
        _: &OrderPlaced,
        _: &Failure,
    ) -> Result<Next<CheckoutStep>> {
        Ok(Next::goto(CheckoutStep::Ship))
    }

    async fn ignore(
        &self,
        _: &mut Scope<'_>,
        _: &OrderPlaced,
        paid: &Payment,
        failure: &Failure,
    ) -> Result<()> {
        println!("{}: {failure}", paid.0);
        Ok(())
    }
}

pub(crate) fn main() {
    use scoop::{Saga, Step};
    use std::time::Duration;

    let definition = Checkout::DEFINITION;
    assert_eq!(definition.saga, "checkout-v2");
    assert_eq!(definition.topic, "orders.placed");
    let names: Vec<_> = definition.steps.iter().map(|step| &*step.name).collect();
    assert_eq!(names, ["reserve", "charge-card", "try", "ship"]);
    let compensated: Vec<_> = definition
        .steps
        .iter()
        .map(|step| step.compensated)
        .collect();
    assert_eq!(compensated, [true, true, true, false]);
    let handling = definition
        .steps
        .iter()
        .map(|step| step.handles_child_failure);
    assert_eq!(handling.collect::<Vec<_>>(), [false, true, true, false]);
    definition.check().unwrap();

    assert_eq!(CheckoutStep::ALL[2], CheckoutStep::Try);
    assert_eq!(CheckoutStep::Try.index(), 2);
    assert_eq!(
        Checkout::timeout(CheckoutStep::Charge),
        Some(Duration::from_secs(30))
    );
    assert_eq!(Checkout::timeout(CheckoutStep::Ship), None);
    let _ = Checkout { payments: Payments };
}
