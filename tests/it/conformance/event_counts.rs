//! The recorded events of a message, and their number (scenarios ME).

use super::*;
use crate::support::{Database, calls_of};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "test-events-topic")]
struct Event;

handler! {
    Succeeding: "succeeding-handler" on Event;
    step "0" zero => done();
}

handler! {
    AlsoSucceeding: "another-handler" on Event;
    step "0" zero => done();
}

handler! {
    Failing: "failing-handler" on Event;
    step "0" zero => fails(SIMULATED).silently();
}

#[tokio::test(flavor = "multi_thread")]
async fn me_01_a_message_without_subscriber_is_only_emitted() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().client().await?;
    let root = scoop.launch(Event).await?;
    assert_eq!(root.ends().await?, Outcome::NoHandlers);
    db.history().await.expect("M0 EMITTED · ·");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn me_02_each_of_two_handlers_sees_the_message() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Succeeding, AlsoSucceeding)).await?;
    assert_eq!(scoop.launch(Event).await?.ends().await?, Outcome::Committed);

    let history = db.history().await;
    assert_eq!(history.count("SEEN"), 2);
    history.only("SEEN", "succeeding-handler");
    history.only("SEEN", "another-handler");
    Ok(())
}

/// A saga is subscribed twice when two processes run it.
#[tokio::test(flavor = "multi_thread")]
async fn me_03_of_two_processes_with_one_saga_one_processes_the_message() -> Result<()> {
    let db = Database::new().await;
    let one = db.start((Succeeding,)).await?;
    let _other = Scoop::builder().postgres(db.another_pool(5).await).only::<Succeeding>().start().await?;
    let root = one.launch(Event).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);

    assert_eq!(db.history().await.count("SEEN"), 1);
    calls_of(&root).expect("invoke succeeding-handler/0");
    Ok(())
}

/// ME-04 and ME-06: `wait` returns as soon as COMMITTED is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn me_04_me_06_successful_run_is_committed_once() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Succeeding,)).await?;
    assert_eq!(scoop.launch(Event).await?.ends().await?, Outcome::Committed);

    db.history().await.expect(
        "M0 EMITTED · ·
        M0 SEEN succeeding-handler ·
        M0 SUSPENDED succeeding-handler 0
        M0 COMMITTED succeeding-handler 0",
    );
    Ok(())
}

/// ME-05 and ME-07: `wait` returns as soon as ROLLED_BACK is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn me_05_me_07_failed_run_is_rolled_back_once() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Failing,)).await?;
    assert!(matches!(scoop.launch(Event).await?.ends().await?, Outcome::RolledBack(_)));

    db.history().await.expect(
        "M0 EMITTED · ·
        M0 SEEN failing-handler ·
        M0 ROLLING_BACK failing-handler 0
        M0 ROLLED_BACK failing-handler RB(0[0,])",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn me_08_two_processes_share_five_messages_without_doing_any_twice() -> Result<()> {
    let db = Database::new().await;
    let one = db.start((Succeeding,)).await?;
    let _other = Scoop::builder().postgres(db.another_pool(5).await).only::<Succeeding>().start().await?;
    let roots = one.launch_all((0..5).map(|_| Event)).await?;
    for root in &roots {
        assert_eq!(root.ends().await?, Outcome::Committed);
        calls_of(root).expect("invoke succeeding-handler/0");
    }

    let history = db.history().await;
    for kind in ["EMITTED", "SEEN", "COMMITTED"] {
        assert_eq!(history.count(kind), 5, "{kind}\n{history}");
    }
    Ok(())
}
