//! Reads and locks of a redelivery.

use super::*;
use crate::support::Database;

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
    client.retire_handler("redelivered-pages.note", "redelivered-pages-reader").await?;
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
    let redelivered = scoop.redeliver::<Note>().await?;
    assert_eq!((redelivered.hierarchies, redelivered.more), (vec![first.id(), second.id()], false));
    scoop.shutdown().await?;
    Ok(())
}

/// A cancellation that is not committed yet excludes the message; afterwards it counts.
#[tokio::test(flavor = "multi_thread")]
async fn message_about_which_an_event_is_being_written_is_left_for_later() -> Result<()> {
    let (db, client) = without_handlers().await?;
    let note = client.launch(Note).await?;
    db.start((Reader,)).await?.shutdown().await?;
    let insert = "INSERT INTO scoop.message_event (message_id, type, cooperation_lineage, exception)
                  VALUES ($1, 'CANCELLATION_REQUESTED', ARRAY[$2::uuid], '{}')";
    let mut tx = db.pool().begin().await?;
    sqlx::query(insert).bind(note.message_id()).bind(note.id()).execute(&mut *tx).await?;
    assert!(client.redeliver::<Note>().await?.hierarchies.is_empty());
    tx.commit().await?;
    assert!(client.redeliver::<Note>().await?.hierarchies.is_empty());
    db.execute("DELETE FROM scoop.message_event WHERE type = 'CANCELLATION_REQUESTED'").await;
    assert_eq!(client.redeliver::<Note>().await?.hierarchies, [note.id()]);
    Ok(())
}
