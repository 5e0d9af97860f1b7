//! Trees of hierarchies with unreadable records.

use std::time::SystemTime;

use scoop::{EventKind, Handle};

use super::*;
use crate::support::Database;

handler! {
    Checkout: "checkout" on Root;
    step "reserve" reserve => fails(SIMULATED);
}

async fn rolled_back() -> Result<(Database, Handle)> {
    let db = Database::new().await;
    let scoop = db.start((Checkout,)).await?;
    let order = scoop.launch(Root).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    scoop.cancel(order.id(), "too late").await?;
    scoop.shutdown().await?;
    Ok((db, order))
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_in_another_form_is_marked() -> Result<()> {
    let (db, order) = rolled_back().await?;
    db.execute(r#"UPDATE scoop.message_event SET exception = '["odd", 7]' WHERE type = 'ROLLING_BACK'"#)
        .await;
    db.execute("UPDATE scoop.message_event SET exception = '7' WHERE type = 'CANCELLATION_REQUESTED'").await;
    let tree = order.tree().await?;
    let turned = tree.roots()[0].events.iter().find(|event| event.kind == EventKind::RollingBack);
    let turned = turned.expect("it began to roll back");
    assert!(turned.unreadable.is_some(), "{turned:?}");
    assert_eq!(turned.failure.as_ref().map(|failure| &*failure.message), Some(r#"["odd",7]"#));
    let text = tree.to_string();
    assert!(text.contains(r#"checkout (on root-topic): rolled back: ["odd",7]"#), "{text}");
    assert!(text.contains("(unreadable: its failure is not as the protocol has it: "), "{text}");
    assert_eq!(tree.cancellations()[0].reason, "7", "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn times_without_end_and_before_1970_are_shown() -> Result<()> {
    let (db, order) = rolled_back().await?;
    db.execute(
        "UPDATE scoop.message_event SET created_at = CASE type
             WHEN 'SEEN' THEN '1969-07-20 20:17:40.5Z'::timestamptz
             WHEN 'ROLLING_BACK' THEN '4000-01-01 BC'
             WHEN 'ROLLED_BACK' THEN 'infinity'
             WHEN 'CANCELLATION_REQUESTED' THEN '-infinity'
             ELSE created_at END",
    )
    .await;
    db.execute(
        "INSERT INTO scoop.intervention (root, run, handler, message_id, kind, source, requested_at)
         SELECT cooperation_lineage[1], cooperation_lineage[2], 'checkout', message_id, 'retry', 'a stranger', 'infinity'
         FROM scoop.message_event WHERE type = 'SEEN'",
    )
    .await;
    let tree = order.tree().await?;
    let events = &tree.roots()[0].events;
    let at = |kind| events.iter().find(|event| event.kind == kind).expect("it is recorded").at;
    assert!(at(EventKind::Seen).is_some_and(|seen| seen < SystemTime::UNIX_EPOCH));
    assert_eq!((at(EventKind::RollingBack), at(EventKind::RolledBack)), (None, None));
    assert_eq!(tree.cancellations()[0].at, None);
    let text = tree.to_string();
    assert!(text.contains("1969-07-20T20:17:40.500Z"), "{text}");
    assert!(text.matches("(unreadable time)").count() >= 3, "{text}");
    assert!(text.contains("retry by a stranger"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_beyond_those_of_programs_is_marked() -> Result<()> {
    let (db, order) = rolled_back().await?;
    let deep = format!("'{}{}'", "[".repeat(200), "]".repeat(200));
    for wait in ["jsonb_build_object('until', repeat('x', 20000))", &deep] {
        db.execute(&format!("UPDATE scoop.message_event SET wait = {wait} WHERE type = 'SEEN'")).await;
        let tree = order.tree().await?;
        let unreadable = tree.roots()[0].events[0].unreadable.as_deref();
        assert!(unreadable.is_some_and(|why| why.starts_with("its wait is larger")), "{tree}");
        assert_eq!((tree.runs().len(), tree.unreadable().len()), (1, 0), "{tree}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_cannot_be_read_at_all_leaves_the_others() -> Result<()> {
    let (db, order) = rolled_back().await?;
    db.execute(&format!(
        "INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
         VALUES ('{}', 'SEEN', E'odd\\none', ARRAY['{}'::uuid, NULL])",
        order.message_id(),
        order.id(),
    ))
    .await;
    let tree = order.tree().await?;
    assert_eq!((tree.runs().len(), tree.unreadable().len()), (1, 1), "{tree}");
    let text = tree.to_string();
    assert!(text.contains("checkout (on root-topic): rolled back"), "{text}");
    assert!(text.contains(r"(unreadable: a run of `odd\none` of message "), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_never_becomes_ready_is_shown() -> Result<()> {
    let db = Database::new().await;
    db.start((Checkout,)).await?.shutdown().await?;
    let order = db.client().launch(Root).await?;
    db.execute(
        "UPDATE scoop.run SET ready_at = 'infinity', give_up_at = '-infinity' WHERE handler = 'checkout'",
    )
    .await;
    let tree = order.tree().await?;
    let [root] = tree.roots() else { panic!("{tree}") };
    assert_eq!(root.state, RunState::Pending, "{tree}");
    assert!(root.wakes_at.is_some_and(|at| at > SystemTime::now()), "{tree}");
    let text = tree.to_string();
    assert!(text.contains("pending, due 9999-12-31T00:00:00.000Z"), "{text}");
    assert!(text.contains("gives up at its deadline, 0001-01-01T00:00:00.000Z"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_leads_to_itself_is_shown_once() -> Result<()> {
    let (db, order) = rolled_back().await?;
    db.execute(&format!(
        "WITH looped AS (
             INSERT INTO scoop.message (topic, payload) VALUES ('looped', 'null') RETURNING id
         ),
         forged AS (
             SELECT ARRAY['{root}', gen_random_uuid()]::uuid[] AS lineage, looped.id AS looped, e.message_id
             FROM looped, scoop.message_event e
             WHERE e.type = 'EMITTED' AND e.cooperation_lineage[1] = '{root}'
         )
         INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
         SELECT message_id, 'SEEN'::scoop.message_event_type, 'forged', lineage FROM forged
         UNION ALL SELECT looped, 'EMITTED', 'forged', lineage FROM forged
         UNION ALL SELECT looped, 'SEEN', 'forged', lineage FROM forged",
        root = order.id(),
    ))
    .await;
    let tree = tokio::time::timeout(std::time::Duration::from_secs(20), async { order.tree().await });
    let tree = tree.await.expect("the read ends")?;
    let forged = tree.runs().into_iter().filter(|run| run.handler == "forged");
    assert_eq!(forged.count(), 2, "{tree}");
    Ok(())
}
