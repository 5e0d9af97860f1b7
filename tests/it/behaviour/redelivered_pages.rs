//! Reads and locks of a redelivery.

use super::*;
use crate::support::{Database, eventually};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "redelivered-pages.note")]
struct Note;

handler! {
    Reader: "redelivered-pages-reader" on Note;
    step "read" read => done();
}

/// A database where handlers are known, but none of the message.
async fn without_handlers() -> Result<(Database, Scoop)> {
    let db = Database::new().await;
    db.start((Reader,)).await?.shutdown().await?;
    let client = db.client();
    client.operate().handlers().retire("redelivered-pages.note", "redelivered-pages-reader").await?;
    Ok((db, client))
}

#[tokio::test(flavor = "multi_thread")]
async fn message_behind_many_events_is_found() -> Result<()> {
    let (db, client) = without_handlers().await?;
    let first = client.launch(Note).await?;
    db.execute(&format!(
        "INSERT INTO scoop.message_event (message_id, type, cooperation_lineage)
         SELECT '{}', 'SUSPENDED', ARRAY['{}', gen_random_uuid()]::uuid[] FROM generate_series(1, 20050)",
        first.message_id(),
        first.id(),
    ))
    .await;
    let second = client.launch(Note).await?;
    let scoop = db.start((Reader,)).await?;
    let redelivered = scoop.operate().handlers().redeliver(Note::TOPIC).await?;
    assert_eq!((redelivered.hierarchies, redelivered.more), (vec![first.id(), second.id()], false));
    scoop.shutdown().await?;
    Ok(())
}

/// A cancellation that is not committed yet excludes the message; afterwards it counts.
#[tokio::test(flavor = "multi_thread")]
async fn message_whose_cancellation_is_not_committed_is_left_for_later() -> Result<()> {
    let (db, client) = without_handlers().await?;
    let note = client.launch(Note).await?;
    db.start((Reader,)).await?.shutdown().await?;
    db.execute(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql
         AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END';
         CREATE TRIGGER hold AFTER INSERT ON scoop.message_event FOR EACH ROW
             WHEN (NEW.type = 'CANCELLATION_REQUESTED') EXECUTE FUNCTION hold()",
    )
    .await;
    let mut tx = db.pool().begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock(1)").execute(&mut *tx).await?;
    let request = tokio::spawn(client.cancel(note.id(), "not wanted").into_future());
    let held_up = "SELECT count(*) FROM pg_locks
                   WHERE locktype = 'advisory' AND mode = 'ShareLock' AND objid = 1 AND NOT granted
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("the request is held up", async || db.number(held_up).await > 0).await;
    assert!(client.operate().handlers().redeliver(Note::TOPIC).await?.hierarchies.is_empty());
    tx.commit().await?;
    request.await.expect("it is made")?;
    assert!(client.operate().handlers().redeliver(Note::TOPIC).await?.hierarchies.is_empty());
    db.execute("DELETE FROM scoop.message_event WHERE type = 'CANCELLATION_REQUESTED'").await;
    assert_eq!(client.operate().handlers().redeliver(Note::TOPIC).await?.hierarchies, [note.id()]);
    Ok(())
}
