//! A handler without a running process (scenario SB).

use super::*;
use crate::support::{Database, calls_of, invoked};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "stub-topic")]
struct Stub;

#[derive(Default)]
struct RootHandler;

#[saga(name = "root-handler")]
#[subscribes(Root)]
impl RootHandler {
    #[step(name = "loop-step")]
    async fn loop_step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
        if invoked(scope) == 0 {
            scope.launch(Child).await?;
            scope.launch(Stub).await?;
        }
        Ok(Next::Repeat)
    }
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero => done();
}

handler! {
    StubHandler: "stub-handler" on Stub;
    step "0" zero => done().silently();
}

/// Only the absent handler has work left, so the observed state is final.
#[tokio::test(flavor = "multi_thread")]
async fn sb_01_registered_handler_without_a_process_blocks_the_parent() -> Result<()> {
    let db = Database::new().await;
    db.start((StubHandler,)).await?.shutdown().await?;
    let scoop = db.start((RootHandler, ChildHandler)).await?;
    let root = scoop.launch(Root).await?;
    let at_rest = |run: &&RunInfo| !matches!(run.state, RunState::Pending | RunState::Waiting);
    root.comes_to(|tree| {
        let runs = tree.runs();
        runs.len() == 3
            && runs.iter().filter(|run| at_rest(run)).all(|run| run.state == RunState::Committed)
            && runs.iter().any(|run| run.state == RunState::Committed)
    })
    .await?;
    // The parent check after the child's end is over by the time another hierarchy has ended.
    assert_eq!(scoop.launch(Child).await?.ends().await?, Outcome::Committed);

    calls_of(&root).expect(
        "invoke root-handler/loop-step
        invoke child-handler/0",
    );
    db.history().await.of(&["root-handler"]).about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M0 SUSPENDED root-handler loop-step next=0",
    );
    assert_eq!(root.tree().await?.runs()[0].state, RunState::Waiting);
    Ok(())
}
