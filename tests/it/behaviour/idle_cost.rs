//! The cost of an idle engine.

use std::time::Duration;

use sqlx::Connection;
use tokio::task::JoinSet;

use super::*;
use crate::support::{Database, takes};

handler! {
    Idle: "idle" on Root;
    step "nothing" nothing => done();
}

/// Sessions report their statistics once a second, and the last ones ten seconds after they have become idle.
const TRANSACTIONS: &str = "SELECT xact_commit + xact_rollback FROM pg_stat_database
    WHERE datname = current_database()";

/// How many transactions there were while this was held.
async fn transactions_meanwhile(db: &Database) -> i64 {
    takes(1_500).await;
    let before = db.number(TRANSACTIONS).await;
    takes(3_000).await;
    db.number(TRANSACTIONS).await - before
}

/// In the program of the sagas, and in a client: one look for all, four times a second.
#[tokio::test(flavor = "multi_thread")]
async fn many_handles_that_wait_cost_as_little_as_a_few() -> Result<()> {
    let db = Database::new().await;
    let program = db.start((Idle,)).await?;
    for scoop in [program.clone(), db.client()] {
        let launched = scoop.launch_all((0..2_000).map(|_| Root)).delay(Duration::from_secs(3_600)).await?;
        let mut waits = JoinSet::new();
        for handle in launched.clone() {
            waits.spawn(async move { handle.wait().await.map(|_| handle.id()) });
        }
        let waiting = transactions_meanwhile(&db).await;
        assert!(waiting < 150, "{waiting} transactions in three seconds, with 2,000 handles that wait");
        assert!(waits.try_join_next().is_none(), "none has ended");
        let cancelled = &launched[1_234];
        scoop.cancel(cancelled.id(), "a test").await?;
        assert_eq!(waits.join_next().await.expect("it waits").expect("it does not panic")?, cancelled.id());
        waits.shutdown().await;
        let after = transactions_meanwhile(&db).await;
        assert!(after < 60, "{after} transactions in three seconds after the waits");
    }
    program.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_does_not_spin_on_a_locked_run() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Idle,)).await?;
    // Those of the start.
    takes(10_000).await;
    let idle = transactions_meanwhile(&db).await;
    assert!(idle < 30, "{idle} transactions of an idle engine in three seconds");

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
