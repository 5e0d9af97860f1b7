//! A compensation that fails, and its repair by an operator.
//!
//! Three orders are rolled back while the bank is closed, so that no refund is possible. The failures are
//! listed. One refund is retried when the bank has opened, one is skipped, one was made by hand. The program
//! ends on its own, and fails if a result is not the expected one.
//!
//! ```text
//! cargo run -p examples --example operations
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use scoop::operate::FailedRollback;
use scoop::prelude::*;
use scoop::requests::RepairAnswer;
use scoop::{Handle, RunId};

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced {
    order: u32,
}

/// The bank account. The bank pays nothing back while it is closed.
#[derive(Clone, Default)]
struct Bank {
    open: Arc<AtomicBool>,
    paid_back: Arc<AtomicU32>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(&'static str);

struct Checkout {
    bank: Bank,
}

#[saga(name = "checkout")]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(rollback = unreserve)]
    async fn reserve(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(rollback = refund)]
    async fn charge(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn ship(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        Err(Refused("the road is flooded").into())
    }

    async fn refund(&self, _: &mut Scope<'_>, _: &OrderPlaced, _: &Failure) -> Result<()> {
        if !self.bank.open.load(Ordering::Relaxed) {
            return Err(Refused("the bank is closed").into());
        }
        self.bank.paid_back.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn unreserve(&self, _: &mut Scope<'_>, order: &OrderPlaced, _: &Failure) -> Result<()> {
        println!("order {}: the goods are back on the shelf", order.order);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let bank = Bank::default();
    let builder = Scoop::builder().embedded().schema("operations");
    let scoop = builder.provide(Checkout { bank: bank.clone() }).start().await?;

    let mut orders = vec![];
    for order in 1..=3 {
        let order = scoop.launch(OrderPlaced { order }).await?;
        println!("an order: {}", order.wait().await?);
        orders.push(order);
    }

    println!("\nWhat could not be undone, newest first:");
    for failed in scoop.operate().failures().list().await? {
        println!("  {}, {}: {}", failed.handler, failed.step, failed.failure);
    }

    let [first, second, third] = &*orders else { unreachable!("there are three") };
    let answers = [
        // Too early: it fails again, and is listed again.
        scoop.operate().failures().retry(run_of(&scoop, first).await?).source("the night shift").await?,
        scoop
            .operate()
            .failures()
            .skip(run_of(&scoop, second).await?, "it was for free")
            .source("support")
            .await?,
        scoop
            .operate()
            .failures()
            .resolve(run_of(&scoop, third).await?, "paid in cash, ticket 4711")
            .source("support")
            .await?,
    ];
    println!("after a retry: {}", first.wait().await?);
    bank.open.store(true, Ordering::Relaxed);
    let answer =
        scoop.operate().failures().retry(run_of(&scoop, first).await?).source("the day shift").await?;

    println!("\nWhat operators did:");
    let mut undone = 0;
    for order in &orders {
        for done in scoop.operate().failures().interventions(order.id()).await? {
            println!("  {done}");
        }
        undone += usize::from(matches!(order.wait().await?, Outcome::RolledBack(_)));
    }
    println!("\n{}", first.tree().await?);
    let left = failed_of(&scoop, &orders).await?;
    scoop.shutdown().await?;

    let paid_back = bank.paid_back.load(Ordering::Relaxed);
    println!("{undone} orders are undone, {paid_back} was paid back, {} are left", left.len());
    let accepted = answers.iter().chain([&answer]).all(|answer| *answer == RepairAnswer::Accepted);
    let good = accepted && undone == 3 && paid_back == 1 && left.is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Failed compensations of these orders that are not settled.
async fn failed_of(scoop: &Scoop, orders: &[Handle]) -> Result<Vec<FailedRollback>> {
    let mut listed = scoop.operate().failures().list().await?;
    listed.retain(|failed| orders.iter().any(|order| failed.hierarchy() == order.id()));
    Ok(listed)
}

/// The id of the run that failed in this order.
async fn run_of(scoop: &Scoop, order: &Handle) -> Result<RunId> {
    let failed = failed_of(scoop, std::slice::from_ref(order)).await?;
    let first = failed.first().ok_or(Refused("the order is not listed"))?;
    Ok(first.id())
}
