//! Claims under a limit by key while runs of the key end.

use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::*;
use crate::store::{FreedKeys, LimitStorage as _, LimitedQueue, LimitedRequest, LimitedSaga};

/// One run of a key is executed, the next is parked, and a later one is due: with the messages 1, 2 and 3.
const RUNS: &str = "
    INSERT INTO scoop.run_limit (saga, handlers, concurrency, concurrency_by_key, key_from)
    VALUES ('saga', '{saga}', 1, true, 'customer');
    INSERT INTO scoop.message (id, topic, payload) SELECT lpad(n::text, 32, '0')::uuid, 'a', '{}' FROM generate_series(1, 3) n;
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, ready_at, parked_since, limit_key, last_event_at)
    SELECT message, id, ARRAY[message, id], message, 'a', 'saga', state::scoop.run_state,
           CASE n WHEN 2 THEN '9999-12-31' ELSE now() - interval '1 hour' * (4 - n) END,
           CASE n WHEN 2 THEN now() - interval '2 hours' END, CASE WHEN n < 3 THEN 'k' END, now() - interval '1 day'
    FROM (VALUES (1, 'running'), (2, 'ready'), (3, 'ready')) runs (n, state)
    CROSS JOIN LATERAL (SELECT lpad(n::text, 32, '0')::uuid AS message, md5(n::text)::uuid AS id) ids";

#[tokio::test(flavor = "multi_thread")]
async fn run_that_ends_during_a_claim_leaves_its_place_to_the_next_parked_run() {
    let pool = database("limit_claims").await;
    let (store, worker, _) = launching(&pool).await;
    sqlx::raw_sql(RUNS).execute(&pool).await.unwrap();
    // The key of the due run is asked for after the claim has found all places taken.
    let key_of = |_: &_| {
        let end = sqlx::raw_sql("DELETE FROM scoop.run WHERE state = 'running'");
        block_in_place(|| Handle::current().block_on(end.execute(&pool))).unwrap();
        "k".to_owned()
    };
    let of = LimitedSaga { saga: "saga".into(), handlers: vec!["saga".into()], key_from: None };
    let request = LimitedRequest {
        claimer: Claimer { worker, identifier: "w" },
        queue: &LimitedQueue { of, lanes: lanes() },
        slots: 5,
        suspect: None,
        freed: &FreedKeys::Some(vec!["k".into()]),
        key_of: &key_of,
    };
    let claimed = store.claim_limited(request).await.unwrap();
    let messages: Vec<_> =
        claimed.runs.iter().map(|run| run.as_ref().expect("it can be read").run.message).collect();
    assert_eq!(messages, [Uuid::from_u128(2)], "the second run has waited longest");
    let parked = "SELECT message_id FROM scoop.run WHERE parked_since IS NOT NULL";
    let parked: Vec<Uuid> = sqlx::query_scalar(parked).fetch_all(&pool).await.unwrap();
    assert_eq!(parked, [Uuid::from_u128(3)]);
    done(pool).await;
}
