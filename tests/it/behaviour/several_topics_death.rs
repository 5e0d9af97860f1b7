//! Runs of sagas with several topics whose process is gone: a worker lists such a saga once for each topic.

use super::*;
use crate::support::{Database, Gate, in_a_process_that_dies};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "several-topics-death.placed")]
struct Placed;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "several-topics-death.changed")]
struct Changed;

#[derive(Clone, Default)]
struct Orders {
    gate: Gate,
}

#[saga(name = "orders-of-the-dead")]
#[subscribes(any(Placed, Changed))]
impl Orders {
    #[step]
    async fn note(&self, _: &mut Scope<'_>, _: &OrdersMessage) -> Result<()> {
        self.gate.pass().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_a_saga_with_several_topics_is_taken_over_from_a_dead_process() -> Result<()> {
    let db = Database::new().await;
    let orders = Orders::default();
    let roots = in_a_process_that_dies(&db, move |builder: scoop::Builder| async move {
        let scoop = builder.only::<Orders>().provide(orders.clone()).start().await?;
        let roots = [scoop.launch(Placed).await?.id(), scoop.launch(Changed).await?.id()];
        orders.gate.arrivals(2).await;
        Ok((scoop, roots))
    })
    .await?;
    let orders = Orders::default();
    orders.gate.open(2);
    let survivor = db.start((orders,)).await?;
    for root in roots {
        assert_eq!(survivor.find(root).await?.ends().await?, Outcome::Committed);
    }
    Ok(())
}
