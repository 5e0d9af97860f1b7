//! A run that is taken over, even by the process that had it before, is settled once.

use std::time::Duration;

use super::*;
use crate::support::{Database, Gate};

struct RootHandler {
    gate: Gate,
}

#[saga(name = "root-handler")]
#[subscribes(Root)]
impl RootHandler {
    #[step(name = "0")]
    async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        self.gate.pass().await;
        scope.launch(Child).await?;
        Ok(())
    }
}

#[derive(Default)]
struct ChildHandler;

#[saga(name = "child-handler")]
#[subscribes(Child)]
impl ChildHandler {
    #[step(name = "0")]
    async fn zero(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
        Ok(())
    }
}

/// On one thread, so that both outcomes are written in the same batch.
#[tokio::test]
async fn a_run_taken_over_by_the_same_process_is_settled_once() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>();
    let scoop = scoop.provide(RootHandler { gate: gate.clone() }).poll_interval(Duration::from_millis(50));
    let scoop = scoop.start().await?;
    let root = scoop.launch(Root).await?;
    gate.arrivals(1).await;
    // As another process does that found our session gone for a moment.
    db.execute(
        "UPDATE scoop.run SET state = 'ready', owner = NULL, ready_at = clock_timestamp()
         WHERE state = 'running'",
    )
    .await;
    gate.arrivals(1).await;
    gate.open(2);
    assert_eq!(root.ends().await?, Outcome::Committed);
    db.history().await.of(&["root-handler"]).about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M0 SUSPENDED root-handler 0
        M0 COMMITTED root-handler 0",
    );
    assert_eq!(db.number("SELECT count(*) FROM scoop.message WHERE topic = 'child-topic'").await, 1);
    Ok(())
}
