//! The cost of an idle engine.

use sqlx::Connection;

use super::*;
use crate::support::{Database, takes};

handler! {
    Idle: "idle" on Root;
    step "nothing" nothing => done();
}

/// Sessions report their statistics once a second.
const TRANSACTIONS: &str = "SELECT xact_commit + xact_rollback FROM pg_stat_database
    WHERE datname = current_database()";

/// How many transactions there were while this was held.
async fn transactions_meanwhile(db: &Database) -> i64 {
    takes(1_500).await;
    let before = db.number(TRANSACTIONS).await;
    takes(3_000).await;
    db.number(TRANSACTIONS).await - before
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_does_not_spin_on_a_locked_run() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Idle,)).await?;
    let idle = transactions_meanwhile(&db).await;
    assert!(idle < 60, "{idle} transactions of an idle engine in three seconds");

    // A run that becomes due while another session has its row locked.
    let mut other = db.another_pool(1).await.acquire().await?.detach();
    sqlx::raw_sql(
        "BEGIN; INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at, ready_at)
         SELECT root, id, ARRAY[root, id], id, 'root-topic', 'idle', now(), now() + interval '1 second'
         FROM (SELECT gen_random_uuid() AS root, gen_random_uuid() AS id) ids; COMMIT;
         BEGIN; SELECT FROM scoop.run FOR UPDATE",
    )
    .execute(&mut other)
    .await?;
    let blocked = transactions_meanwhile(&db).await;
    assert!(blocked < 300, "{blocked} transactions in three seconds, with one run that is locked");
    sqlx::raw_sql("DELETE FROM scoop.run; COMMIT").execute(&mut other).await?;
    other.close().await?;
    scoop.shutdown().await?;
    Ok(())
}
