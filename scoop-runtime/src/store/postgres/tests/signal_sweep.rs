//! Sweeps of kept signals.

use std::time::Duration;

use scoop_core::SignalKey;
use serde_json::json;
use sqlx::PgPool;
use uuid::Uuid;

use super::{database, done, launching};
use crate::store::{Deliver, NewSignal, SignalStorage as _, Transaction};

fn signal(key: &str) -> NewSignal {
    let to = SignalKey { name: "paid".into(), key: key.into() };
    NewSignal { id: Uuid::now_v7(), to, payload: json!(7), keep: Duration::from_secs(3_600) }
}

/// Makes a run that awaits the signal with this key.
async fn await_signal(pool: &PgPool, key: &str) {
    let insert = sqlx::query(
        "INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, ready_at, step, suspensions, signal, \
             signal_key, last_event_at) \
         SELECT id, id, ARRAY[id, id], id, 'a', 'saga', 'infinity', 'wait', 1, 'paid', $1, now() \
         FROM gen_random_uuid() id",
    );
    insert.bind(key).execute(pool).await.unwrap();
}

#[tokio::test]
async fn transaction_that_ends_after_a_sweep_is_found_by_the_next() {
    let pool = database("late_signal").await;
    let (store, ..) = launching(&pool).await;
    await_signal(&pool, "7").await;
    let mut late = pool.begin().await.unwrap();
    store.insert_signal(&mut *late, &signal("7")).await.unwrap();
    // Others begin and end meanwhile.
    store.insert_signal(&pool, &signal("8")).await.unwrap();
    let first = store.signal_horizon().await.unwrap();
    assert!(store.deliver_signals(&Deliver::SentSince(first.clone())).await.unwrap().is_empty());
    store.insert_signal(&pool, &signal("9")).await.unwrap();
    late.commit().await.unwrap();
    assert_eq!(store.deliver_signals(&Deliver::SentSince(first)).await.unwrap(), ["saga"]);
    done(pool).await;
}

#[tokio::test]
async fn signals_of_earlier_transactions_are_not_looked_at() {
    let pool = database("old_signal").await;
    let (store, ..) = launching(&pool).await;
    store.insert_signal(&pool, &signal("7")).await.unwrap();
    await_signal(&pool, "7").await;
    let later: String =
        sqlx::query_scalar("SELECT pg_current_xact_id()::text").fetch_one(&pool).await.unwrap();
    assert!(store.deliver_signals(&Deliver::SentSince(Transaction(later))).await.unwrap().is_empty());
    assert_eq!(store.deliver_signals(&Deliver::SentSince(Transaction::default())).await.unwrap(), ["saga"]);
    done(pool).await;
}
