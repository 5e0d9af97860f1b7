//! An error queue: a saga that gets a message for each failed hierarchy, in the transaction that records the failure.
//!
//! ```text
//! cargo run -p examples --example error_queue
//! ```

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.placed")]
struct OrderPlaced {
    order: i64,
    cents: i64,
}

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(rollback = release)]
    async fn reserve(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn charge(&self, _: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        if order.cents > 10_000 {
            return Err(Error::msg("the card is declined"));
        }
        Ok(())
    }

    async fn release(&self, _: &mut Scope<'_>, order: &OrderPlaced, _: &Failure) -> Result<()> {
        if order.cents > 1_000_000 {
            return Err(Error::msg("the stock does not answer"));
        }
        Ok(())
    }
}

/// Writes down all failures, in the transaction of its step.
#[derive(Default)]
struct ErrorQueue;

#[saga]
#[subscribes(Failed)]
impl ErrorQueue {
    #[step]
    async fn record(&self, scope: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        let tx = scope.tx().await?;
        sqlx::query("INSERT INTO failed_hierarchy (id, saga, report) VALUES ($1, $2, $3)")
            .bind(failed.hierarchy)
            .bind(&failed.saga)
            .bind(failed.failure.report())
            .execute(tx)
            .await?;
        Ok(())
    }
}

/// Calls an operator about those that only people can end. Of all others it gets no run.
#[derive(Default)]
struct OnCall;

#[saga]
#[subscribes(Failed(saga = Checkout, outcome = "rollback_failed"))]
impl OnCall {
    #[step]
    async fn page(&self, _: &mut Scope<'_>, failed: &Failed) -> Result<()> {
        let order = failed.message::<OrderPlaced>()?.map_or(0, |message| message.order);
        let why = failed.rollback_failure.as_ref().map_or_else(String::new, ToString::to_string);
        println!("order {order}: {why}");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let table = "CREATE TABLE failed_hierarchy (id uuid PRIMARY KEY, saga text, report text)";
    sqlx::query(table).execute(scoop.pool()).await?;
    for (order, cents) in [(1, 500), (2, 20_000), (3, 2_000_000)] {
        let placed = scoop.launch(OrderPlaced { order, cents }).await?;
        println!("order {order}: {:?}", placed.wait().await?);
    }
    loop {
        let reports: Vec<String> =
            sqlx::query_scalar("SELECT report FROM failed_hierarchy").fetch_all(scoop.pool()).await?;
        if reports.len() == 2 {
            reports.iter().for_each(|report| print!("{report}"));
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    scoop.shutdown().await?;
    Ok(())
}
