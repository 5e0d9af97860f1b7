//! Runs that become visible after later ones: their transaction commits late.

use std::time::Duration;

use scoop::Priority;

use super::*;
use crate::support::Database;

/// Looks at whole queues, which find any run, are much rarer.
const SOON: Duration = Duration::from_secs(20);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "late.order")]
struct Order {
    customer: u32,
}

#[derive(Default)]
struct Orders;

#[saga(name = "late-orders")]
#[subscribes(Order)]
impl Orders {
    #[step]
    async fn book(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "late.call")]
struct Call {
    customer: u32,
}

#[derive(Default)]
struct Calls;

#[saga(name = "late-calls", concurrency(2, by = customer))]
#[subscribes(Call)]
impl Calls {
    #[step]
    async fn answer(&self, _: &mut Scope<'_>, _: &Call) -> Result<()> {
        Ok(())
    }
}

/// Launches of a message with each priority, of the two sagas.
async fn launch_each(client: &Scoop, tx: &mut sqlx::PgConnection) -> Result<Vec<scoop::HierarchyId>> {
    let mut launched = vec![];
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        let order = client.launch(Order { customer: 1 }).priority(priority);
        launched.push(order.in_transaction(&mut *tx).await?.id());
        let call = client.launch(Call { customer: 1 }).priority(priority);
        launched.push(call.in_transaction(&mut *tx).await?.id());
    }
    Ok(launched)
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_transaction_that_outlives_many_claims_are_claimed_soon_after_its_commit() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Orders, Calls)).await?;
    let client = Scoop::client(db.another_pool(2).await);
    let mut late = db.pool().begin().await?;
    let launched = launch_each(&client, &mut late).await?;
    // Each is claimed and ends, so the positions go on. The last ones are launched and claimed beside the snapshot of a reader.
    let mut reader = db.pool().begin().await?;
    sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT FROM scoop.run")
        .execute(&mut *reader)
        .await?;
    for customer in 0..20 {
        let priority = [Priority::Low, Priority::Normal, Priority::High][customer as usize % 3];
        let order = client.launch(Order { customer }).priority(priority).await?;
        let call = client.launch(Call { customer }).priority(priority).await?;
        assert_eq!(order.ends().await?, Outcome::Committed);
        assert_eq!(call.ends().await?, Outcome::Committed);
    }
    late.commit().await?;
    for id in launched {
        let ends = async { scoop.find(id).await?.ends().await };
        let ended = tokio::time::timeout(SOON, ends).await.expect("it is claimed soon");
        assert_eq!(ended?, Outcome::Committed);
    }
    reader.rollback().await?;
    scoop.shutdown().await?;
    Ok(())
}
