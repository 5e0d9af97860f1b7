//! Notification of processes, running and stopped (scenarios PN, MH and SH).

use std::time::Duration;

use super::*;
use crate::support::{Database, Gate, calls_of};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

handler! {
    One(gate): "one" on Root;
    step "0" zero => at_gate();
}

handler! {
    Other: "other" on Root;
    step "0" zero => done();
}

/// Here notifications go from process to process, and name no topic. So a test observes one by a
/// message of another process.
#[tokio::test(flavor = "multi_thread")]
async fn pn_01_mh_01_one_notification_of_another_process_wakes_all_sagas_of_the_topic() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    gate.open(1);
    let engine = db.scoop().only::<One>().only::<Other>().provide(One { gate }).poll_interval(NEVER);
    let engine = engine.start().await?;
    // The engine's work at its start is over when this has gone through.
    let client = Scoop::builder().postgres(db.another_pool(5).await).client().await?;
    let root = client.launch(Root).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(calls_of(&root).count(), 2);
    engine.shutdown().await?;
    Ok(())
}

/// W-32 as well: neither polling nor a notification has anything begun after the request.
#[tokio::test(flavor = "multi_thread")]
async fn sh_01_w_32_five_programs_stop_in_the_middle_of_their_work() -> Result<()> {
    let db = Database::new().await;
    let gate = Gate::default();
    let mut programs = vec![];
    for _ in 0..5 {
        let pool = db.another_pool(5).await;
        let scoop = Scoop::builder().postgres(pool).only::<One>().poll_interval(Duration::from_millis(1));
        programs.push(scoop.concurrency(1).provide(One { gate: gate.clone() }).start().await?);
    }
    let client = db.scoop().client().await?;
    let roots = client.launch_all((0..10).map(|_| Root)).await?;
    gate.arrivals(5).await;
    // All have a step that runs, and were asked to stop before it ends.
    for program in &programs {
        let asked = tokio::time::timeout(Duration::from_millis(1), program.shutdown()).await;
        assert!(asked.is_err(), "its step still runs");
    }
    gate.open(5);
    for program in &programs {
        program.shutdown().await?;
    }
    let history = db.history().await;
    assert_eq!((history.count("SEEN"), history.count("COMMITTED")), (5, 5), "{history}");
    assert_eq!(db.number("SELECT count(*) FROM scoop.worker").await, 0);
    assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE state = 'ready'").await, 5);

    gate.open(5);
    let _next = db.start((One { gate: gate.clone() },)).await?;
    for root in roots {
        assert_eq!(root.ends().await?, Outcome::Committed);
        calls_of(&root).expect("invoke one/0");
    }
    Ok(())
}
