//! Changes of the living workers.

use uuid::Uuid;

use super::{BACKOFF, database, done, launching};
use crate::store::FreeStorage as _;

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_leaves_while_another_takes_it_over_changes_the_topology_once() {
    let pool = database("topology_left").await;
    let (store, worker, _) = launching(&pool).await;
    // Nobody holds its lock: it looks dead from the moment its session ends.
    let leaving = Uuid::now_v7();
    store.register_alone(&pool, leaving, 2).await;
    let topology = "SELECT topology FROM scoop.worker";
    let before: Vec<i64> = sqlx::query_scalar(topology).fetch_all(&pool).await.unwrap();
    assert_eq!(before, [0, 0]);

    let mut leave = pool.begin().await.unwrap();
    store.lock_topology(&mut leave).await.unwrap();
    let reap = tokio::spawn({
        let store = store.clone();
        async move { store.reap(worker, BACKOFF).await }
    });
    let waits = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&pool).await.unwrap() {
        tokio::task::yield_now().await;
    }
    sqlx::query("DELETE FROM scoop.worker WHERE id = $1").bind(leaving).execute(&mut *leave).await.unwrap();
    let left: i64 = sqlx::query_scalar(topology).fetch_one(&mut *leave).await.unwrap();
    leave.commit().await.unwrap();

    assert_eq!(reap.await.unwrap().unwrap().workers, 0);
    let after: i64 = sqlx::query_scalar(topology).fetch_one(&pool).await.unwrap();
    assert_eq!(after, left, "nobody would be notified of another change");
    done(pool).await;
}
