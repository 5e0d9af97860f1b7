//! Finding runs, explaining what they wait for, and following events.
//!
//! `cargo run -p examples --example find_and_explain`

use std::time::Duration;

use scoop::RunPhase;
use scoop::operate::{OperateExt as _, WaitKind, WaitReason};
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "finding.orders")]
struct Order {
    number: u32,
    chairs: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "finding.deliveries")]
struct Deliver {
    number: u32,
}

/// The customer has paid.
#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "finding.paid", retention = "1 day")]
struct Paid;

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[error("{missing} chairs are missing")]
struct OutOfStock {
    missing: u32,
}

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(Order)]
impl Checkout {
    #[step]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        if order.chairs > 10 {
            return Err(OutOfStock { missing: order.chairs - 10 }.into());
        }
        scope.launch(Deliver { number: order.number }).await?;
        Ok(())
    }

    #[step]
    async fn thank(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Delivery;

#[saga]
#[subscribes(Deliver)]
impl Delivery {
    #[step]
    async fn pack(&self, _: &mut Scope<'_>, _: &Deliver) -> Result<()> {
        Ok(())
    }

    #[step(awaits(Paid, by = number))]
    async fn hand_over(&self, _: &mut Scope<'_>, _: &Deliver, _: &Paid) -> Result<()> {
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, delivery: &Deliver) -> Result<String> {
        Ok(format!("order {}", delivery.number))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let order = scoop.launch(Order { number: 7, chairs: 2 }).unique("order 7").await?;
    let large = scoop.launch(Order { number: 8, chairs: 12 }).await?;
    assert!(matches!(large.wait().await?, Outcome::RolledBack(_)));

    // Why has that order failed, and which others have for the same reason?
    let failed = scoop.operate().runs().list().handler("checkout").failed_with("out-of-stock").await?.runs;
    println!("{}", failed[0]);
    assert_eq!((failed.len(), failed[0].hierarchy), (1, large.id()));
    assert_eq!(failed[0].phase, RunPhase::RolledBack);

    // What does the other one wait for?
    let found = scoop.find_by_key::<Order>("order 7").await?;
    assert_eq!(found.id(), order.id());
    while scoop.operate().runs().list().waiting_for(WaitKind::Signal).await?.runs.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let explanation = scoop.operate().runs().explain(found.id()).await?;
    println!("{explanation}");
    let WaitReason::Children { blocking, .. } = &explanation.runs[0].reason else {
        panic!("it waits for its delivery")
    };
    let WaitReason::Signal { signal, .. } =
        &scoop.operate().runs().explain(blocking[0].run).await?.runs[0].reason
    else {
        panic!("that awaits a signal")
    };
    assert_eq!(signal.key, "order 7");

    // It goes on: each event comes as it happens.
    let mut events =
        scoop.operate().events().hierarchy(order.id()).interval(Duration::from_millis(20)).follow();
    let begun = tokio::time::timeout(Duration::from_millis(200), events.next()).await;
    assert!(begun.is_err(), "nothing happens before the signal");
    scoop.signal(Paid, "order 7").await?;
    while let Some(event) = events.next().await {
        let event = event?;
        println!("{event}");
        if event.kind.as_str() == "COMMITTED" && event.handler.as_deref() == Some("checkout") {
            break;
        }
    }

    let counts = scoop.operate().runs().count().await?;
    for count in &counts.finished {
        println!("{} {}: {}", count.handler, count.phase, count.count);
    }
    assert!(counts.unfinished.is_empty());
    scoop.shutdown().await?;
    assert!(events.next().await.is_none());
    Ok(())
}
