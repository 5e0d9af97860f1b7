//! The names of recorded limits, when programs start in which sagas have other names.

use super::*;
use crate::model::limits::{Limit, Limits};
use crate::store::{LimitStorage as _, SagaLimit};

/// The limit of `a`, which was `c` before, with a run of each name that is parked, and begun runs.
const RENAMED: &str = "
    INSERT INTO scoop.run_limit (saga, handlers, rate, rate_period_ms, rate_by_key, key_from)
    VALUES ('a', '{a,c}', 1, 3600000, true, 'user');
    INSERT INTO scoop.rate_window (saga, key, begun, has_parked, opens_at, idle_at)
    VALUES ('a', 'k', '[]', true, now(), now());
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, ready_at, parked_since, limit_key, last_event_at)
    SELECT root, id, ARRAY[root, id], root, 't', handler, 'ready', '9999-12-31', now(), 'k', now()
    FROM (VALUES ('a'), ('c')) handlers (handler)
    CROSS JOIN LATERAL (SELECT md5('root' || handler)::uuid AS root, md5(handler)::uuid AS id) ids";

fn limit(saga: &str, was: &[&str], concurrency: Option<u32>) -> SagaLimit {
    let concurrency = concurrency.map(|most| Limit { most, is_by_key: false });
    let was = was.iter().map(|name| (*name).to_owned()).collect();
    SagaLimit { saga: saga.to_owned(), was, limits: Limits { concurrency, ..Limits::NONE } }
}

async fn texts(pool: &PgPool, query: &'static str) -> Vec<String> {
    sqlx::query_scalar(query).fetch_all(pool).await.unwrap()
}

async fn recorded(pool: &PgPool) -> Vec<String> {
    texts(pool, "SELECT saga || ': ' || array_to_string(handlers, ' ') FROM scoop.run_limit ORDER BY saga")
        .await
}

#[tokio::test]
async fn saga_that_takes_a_former_name_leaves_the_limit_of_the_other() {
    let pool = database("limit_taken_name").await;
    let (store, ..) = launching(&pool).await;
    sqlx::raw_sql(RENAMED).execute(&pool).await.unwrap();
    for own in [None, Some(3)] {
        store.publish_limits(&[limit("c", &[], own)]).await.unwrap();
        let expected: &[_] = if own.is_some() { &["a: a", "c: c"] } else { &["a: a"] };
        assert_eq!(recorded(&pool).await, expected);
        assert!(
            store.publish_limits(&[limit("c", &[], own)]).await.unwrap().is_empty(),
            "nothing has changed"
        );
    }
    let parked = "SELECT handler::text FROM scoop.run WHERE parked_since IS NOT NULL";
    assert_eq!(texts(&pool, parked).await, ["a"], "the runs of the other return to their queue");
    assert_eq!(texts(&pool, "SELECT saga::text FROM scoop.rate_window").await, ["a"]);
    done(pool).await;
}

#[tokio::test]
async fn limit_that_names_no_other_saga_is_deleted() {
    let pool = database("limit_named_alone").await;
    let (store, ..) = launching(&pool).await;
    pool.execute("INSERT INTO scoop.run_limit (saga, handlers, concurrency) VALUES ('z', '{c,former,c}', 1)")
        .await
        .unwrap();
    store.publish_limits(&[limit("c", &["former"], Some(2))]).await.unwrap();
    assert_eq!(recorded(&pool).await, ["c: c former"]);
    done(pool).await;
}

#[tokio::test]
async fn limit_with_too_many_recorded_names_has_those_of_the_program() {
    let pool = database("limit_many_names").await;
    let (store, ..) = launching(&pool).await;
    pool.execute(
        "INSERT INTO scoop.run_limit (saga, handlers, concurrency)
         SELECT saga, ARRAY[saga, 'c'] || ARRAY(SELECT saga || n FROM generate_series(1, 600) n), 1
         FROM (VALUES ('c'), ('former')) sagas (saga)",
    )
    .await
    .unwrap();
    let changes = store.publish_limits(&[limit("c", &["former"], Some(2))]).await.unwrap();
    assert_eq!(changes.iter().map(|change| change.left_out).collect::<Vec<_>>(), [1_200]);
    assert_eq!(recorded(&pool).await, ["c: c former"]);
    done(pool).await;
}
