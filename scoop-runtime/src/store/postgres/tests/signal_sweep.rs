//! Sweeps of kept signals.

use std::time::Duration;

use scoop_core::SignalKey;
use serde_json::json;
use sqlx::PgPool;
use uuid::Uuid;

use super::{database, done, launching};
use crate::store::{Deliver, Delivered, NewSignal, SignalStorage as _, TransactionNumber};

fn signal(key: &str) -> NewSignal {
    let to = SignalKey { name: "paid".into(), key: key.into() };
    NewSignal {
        id: Uuid::now_v7(),
        to,
        payload: json!(7),
        retention: Duration::from_secs(3_600),
        trace: None,
    }
}

async fn await_signal(pool: &PgPool, key: &str) {
    await_signal_in(pool, key, "wait").await;
}

async fn await_signal_in(pool: &PgPool, key: &str, step: &str) {
    let insert = sqlx::query(
        "INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, ready_at, step, suspensions, awaited, \
             last_event_at) \
         SELECT id, id, ARRAY[id, id], id, 'a', 'saga', 'infinity', $2, 1, ROW('paid', $1, NULL)::scoop.awaited, now() \
         FROM gen_random_uuid() id",
    );
    insert.bind(key).bind(step).execute(pool).await.unwrap();
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
    assert!(store.deliver_signals(&Deliver::SentSince(first.clone())).await.unwrap().handlers.is_empty());
    store.insert_signal(&pool, &signal("9")).await.unwrap();
    late.commit().await.unwrap();
    assert_eq!(store.deliver_signals(&Deliver::SentSince(first)).await.unwrap().handlers, ["saga"]);
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
    let delivered = store.deliver_signals(&Deliver::SentSince(TransactionNumber(later))).await.unwrap();
    assert!(delivered.handlers.is_empty());
    let delivered = store.deliver_signals(&Deliver::SentSince(TransactionNumber::default())).await.unwrap();
    assert_eq!(delivered.handlers, ["saga"]);
    done(pool).await;
}

/// The name of the output of this step is too long.
fn endless() -> String {
    "s".repeat(255)
}

#[tokio::test]
async fn damaged_run_holds_up_no_signal_of_others() {
    let pool = database("damaged_wait").await;
    let (store, ..) = launching(&pool).await;
    await_signal_in(&pool, "7", &endless()).await;
    await_signal(&pool, "7").await;
    await_signal(&pool, "8").await;
    await_signal_in(&pool, "9", &endless()).await;
    for key in ["7", "8", "9"] {
        store.insert_signal(&pool, &signal(key)).await.unwrap();
    }
    let sent = Deliver::SentSince(TransactionNumber::default());
    let Delivered { mut handlers, mut refused, mut locked } = store.deliver_signals(&sent).await.unwrap();
    // The server reports an error before it releases the locks of the transaction.
    while !locked.is_empty() {
        let keys = locked.into_iter().map(|locked| locked.to).collect();
        let delivered = store.deliver_signals(&Deliver::To(keys)).await.unwrap();
        handlers.extend(delivered.handlers);
        refused.extend(delivered.refused);
        locked = delivered.locked;
    }
    assert_eq!(handlers, ["saga", "saga"]);
    refused.sort_by(|one, other| one.to.key.cmp(&other.to.key));
    let refused: Vec<_> = refused.iter().map(|it| (&*it.to.key, it.run.as_ref())).collect();
    let [("7", Some(seventh)), ("9", Some(ninth))] = refused[..] else { panic!("{refused:?}") };
    assert_eq!((&*seventh.step, &*ninth.handler), (&*endless(), "saga"));
    let reached = "SELECT key, reached, delivered_at IS NOT NULL FROM scoop.signal ORDER BY key";
    let reached: Vec<(String, i32, bool)> = sqlx::query_as(reached).fetch_all(&pool).await.unwrap();
    let expected = [("7", 1, true), ("8", 1, true), ("9", 0, false)];
    assert_eq!(reached, expected.map(|(key, runs, delivered)| (key.to_owned(), runs, delivered)));
    done(pool).await;
}

#[tokio::test]
async fn signal_to_a_damaged_run_is_recorded_and_reaches_the_others() {
    let pool = database("damaged_receiver").await;
    let (store, ..) = launching(&pool).await;
    await_signal_in(&pool, "7", &endless()).await;
    await_signal(&pool, "7").await;
    let sent = store.send_signal(&signal("7"), None).await.unwrap();
    assert_eq!((sent.reached, &*sent.handlers), (1, &["saga".to_owned()][..]));
    done(pool).await;
}

/// Locks a signal of one key, and the run that awaits another one.
async fn lock_both(pool: &PgPool) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut other = pool.begin().await.unwrap();
    for lock in [
        "SELECT FROM scoop.signal WHERE key = '7' FOR UPDATE",
        "SELECT FROM scoop.run WHERE (awaited).key = '8' FOR UPDATE",
    ] {
        sqlx::query(lock).execute(&mut *other).await.unwrap();
    }
    other
}

#[tokio::test]
async fn locked_rows_hold_up_no_signal_of_other_keys() {
    let pool = database("locked_signal").await;
    let (store, ..) = launching(&pool).await;
    for key in ["7", "8", "9"] {
        store.insert_signal(&pool, &signal(key)).await.unwrap();
        await_signal(&pool, key).await;
    }
    let other = lock_both(&pool).await;
    let delivered = store.deliver_signals(&Deliver::SentSince(TransactionNumber::default())).await.unwrap();
    assert_eq!(delivered.handlers, ["saga"]);
    let locked: Vec<_> = delivered.locked.into_iter().map(|locked| locked.to).collect();
    assert_eq!(locked.iter().map(|to| &*to.key).collect::<Vec<_>>(), ["7", "8"]);
    let reached = "SELECT key, reached FROM scoop.signal ORDER BY key";
    let reached: Vec<(String, i32)> = sqlx::query_as(reached).fetch_all(&pool).await.unwrap();
    assert_eq!(reached, [("7".into(), 0), ("8".into(), 0), ("9".into(), 1)]);
    let one = store.deliver_signals(&Deliver::To(locked[..1].to_vec())).await.unwrap();
    assert_eq!((one.handlers.len(), one.locked.len()), (0, 1));

    other.rollback().await.unwrap();
    let delivered = store.deliver_signals(&Deliver::To(locked)).await.unwrap();
    assert_eq!((&*delivered.handlers, delivered.locked.len()), (&["saga".to_owned()][..], 0));
    let left = "SELECT count(*) FROM scoop.signal WHERE delivered_at IS NULL OR reached <> 1";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&pool).await.unwrap(), 0);
    done(pool).await;
}

#[tokio::test]
async fn signal_behind_a_locked_one_is_recorded() {
    let pool = database("behind_locked").await;
    let (store, ..) = launching(&pool).await;
    store.insert_signal(&pool, &signal("7")).await.unwrap();
    await_signal(&pool, "7").await;
    let other = lock_both(&pool).await;
    let sent = store.send_signal(&signal("7"), None).await.unwrap();
    assert_eq!((sent.reached, sent.handlers.len()), (0, 0));
    other.rollback().await.unwrap();
    let delivered = store.deliver_signals(&Deliver::SentSince(TransactionNumber::default())).await.unwrap();
    assert_eq!(delivered.handlers, ["saga"]);
    let kept = "SELECT count(*) FROM scoop.signal WHERE delivered_at IS NULL";
    assert_eq!(sqlx::query_scalar::<_, i64>(kept).fetch_one(&pool).await.unwrap(), 1);
    done(pool).await;
}

#[tokio::test]
async fn signal_that_no_program_can_read_arrives_as_that() {
    let pool = database("unreadable_signal").await;
    let (store, ..) = launching(&pool).await;
    let deep = format!("{}{}", "[".repeat(6_000), "]".repeat(6_000));
    for (key, payload) in [("7", "1e400"), ("8", &*deep), ("9", "7")] {
        await_signal(&pool, key).await;
        let insert = "INSERT INTO scoop.signal (id, name, key, payload, kept_until) \
                      VALUES (gen_random_uuid(), 'paid', $1, $2::jsonb, now() + interval '1 hour')";
        sqlx::query(insert).bind(key).bind(payload).execute(&pool).await.unwrap();
    }
    let delivered = store.deliver_signals(&Deliver::SentSince(TransactionNumber::default())).await.unwrap();
    assert!(delivered.refused.is_empty());
    let outputs = "SELECT (outputs -> 'wait') ? 'scoop:unreadable' FROM scoop.run WHERE outputs IS NOT NULL";
    let mut outputs: Vec<bool> = sqlx::query_scalar(outputs).fetch_all(&pool).await.unwrap();
    outputs.sort_unstable();
    assert_eq!(outputs, [false, true, true]);
    done(pool).await;
}

#[tokio::test]
async fn awaited_names_are_those_of_living_programs_or_of_all() {
    let pool = database("awaited_names").await;
    let (store, ..) = launching(&pool).await;
    assert!(store.awaited_names(false).await.unwrap().is_empty());
    sqlx::raw_sql(
        "WITH known AS (
             INSERT INTO scoop.definition (id, handler, fingerprint, steps)
             SELECT id, 'saga', gen_random_uuid(),
                    jsonb_build_array('{\"name\": \"a\"}'::jsonb, jsonb_build_object('awaits', name))
             FROM unnest('{paid,packed}'::text[]) WITH ORDINALITY AS known (name, id) RETURNING id, steps
         )
         INSERT INTO scoop.worker (id, lock_key, backend, role, topics, handlers, definitions, started_at)
         SELECT gen_random_uuid(), 1, 1, 1, '{topic}', '{saga}', ARRAY[id], now() FROM known
         WHERE steps @> '[{\"awaits\": \"paid\"}]'",
    )
    .execute(&pool)
    .await
    .unwrap();
    assert_eq!(store.awaited_names(true).await.unwrap(), ["paid"]);
    let mut all = store.awaited_names(false).await.unwrap();
    all.sort_unstable();
    assert_eq!(all, ["packed", "paid"]);
    done(pool).await;
}
