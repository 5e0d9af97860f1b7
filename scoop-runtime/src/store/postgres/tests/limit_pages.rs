//! Looks at the keys with parked runs: how far one of them goes, and what it writes.

use super::*;
use crate::store::limit::PAGE_MAX;
use crate::store::{Candidate, FreedKeys, LimitStorage as _, LimitedQueue, LimitedRequest, LimitedSaga};

/// One run of each user begins within an hour.
const LIMIT: &str = "
    INSERT INTO scoop.run_limit (saga, handlers, rate, rate_period_ms, rate_by_key, key_from)
    VALUES ('saga', '{saga}', 1, 3600000, true, 'user')";

/// Parks a run of each of so many keys, of which another one has just begun.
pub(super) async fn park(pool: &PgPool, keys: usize) {
    let insert = format!(
        "INSERT INTO scoop.run
             (root, id, lineage, message_id, topic, handler, state, ready_at, parked_since, limit_key, last_event_at)
         SELECT root, id, ARRAY[root, id], root, 'a', 'saga', 'ready', '9999-12-31', now(), lpad(n::text, 6, '0'), now()
         FROM generate_series(1, {keys}) n
         CROSS JOIN LATERAL (SELECT md5('root' || n)::uuid AS root, md5('run' || n)::uuid AS id) ids;
         INSERT INTO scoop.rate_window (saga, key, begun, has_parked, opens_at, idle_at)
         SELECT 'saga', lpad(n::text, 6, '0'), jsonb_build_array(jsonb_build_array(micros, micros, 1)), true, at, at
         FROM generate_series(1, {keys}) n
         CROSS JOIN (
             SELECT (extract(epoch FROM begun) * 1000000)::bigint AS micros, begun + interval '1 hour' AS at
             FROM (SELECT date_trunc('second', now()) AS begun) second
         ) begun"
    );
    sqlx::raw_sql(AssertSqlSafe(insert)).execute(pool).await.unwrap();
}

/// Looks at these keys, and at the page that begins with that key, without a slot for any run.
async fn look(store: &PostgresStore, worker: Uuid, keys: &[&str], page_from: Option<&str>) -> Option<String> {
    let of = LimitedSaga { saga: "saga".into(), handlers: vec!["saga".into()], key_from: None };
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    let request = LimitedRequest {
        claimer: Claimer { worker, identifier: "w" },
        queue: &LimitedQueue { of, queues: queues() },
        slots: 0,
        suspect: None,
        freed: &FreedKeys { keys, page_from: page_from.map(str::to_owned) },
        cursors: &QueueCursors::default(),
        key_of: &|_: &Candidate| Some(String::new()),
    };
    store.claim_limited(request).await.unwrap().page.next
}

async fn parked(pool: &PgPool) -> Vec<String> {
    let parked = "SELECT limit_key::text FROM scoop.run WHERE parked_since IS NOT NULL ORDER BY limit_key";
    sqlx::query_scalar(parked).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn page_of_keys_that_wait_for_their_rate_writes_nothing() {
    let pool = database("limit_pages").await;
    let (store, worker, _) = launching(&pool).await;
    pool.execute(LIMIT).await.unwrap();
    park(&pool, 2 * PAGE_MAX + 5).await;
    let written = async || {
        let rows = "SELECT md5(string_agg(w.key || ' ' || w.xmin || ' ' || w.ctid, ',' ORDER BY w.key))
                    FROM scoop.rate_window w";
        sqlx::query_scalar::<_, String>(rows).fetch_one(&pool).await.unwrap()
    };
    let before = written().await;
    assert_eq!(look(&store, worker, &[], Some("")).await.as_deref(), Some("001001"));
    assert_eq!(look(&store, worker, &[], Some("001001")).await.as_deref(), Some("002001"));
    assert_eq!(look(&store, worker, &[], Some("002001")).await, None);
    // Nor does the end of a run of such a key.
    assert_eq!(look(&store, worker, &["000007"], None).await, None);
    assert_eq!(written().await, before);
    assert_eq!(parked(&pool).await.len(), 2 * PAGE_MAX + 5);
    done(pool).await;
}

#[tokio::test]
async fn key_without_a_row_that_programs_write_is_looked_at_in_its_page() {
    let pool = database("limit_pages_forged").await;
    let (store, worker, _) = launching(&pool).await;
    pool.execute(LIMIT).await.unwrap();
    park(&pool, 6).await;
    pool.execute(
        "UPDATE scoop.rate_window SET begun = '[]',
             has_parked = key <> '000002',
             opens_at = CASE key WHEN '000003' THEN 'infinity' WHEN '000004' THEN now() + interval '3 hours' ELSE opens_at END,
             idle_at = CASE key WHEN '000005' THEN now() ELSE 'infinity' END
         WHERE key BETWEEN '000002' AND '000005';
         DELETE FROM scoop.rate_window WHERE key = '000006'",
    )
    .await
    .unwrap();
    look(&store, worker, &[], Some("")).await;
    assert_eq!(parked(&pool).await, ["000001"]);
    done(pool).await;
}

#[tokio::test]
async fn run_that_waits_for_its_rate_returns_when_that_admits_it() {
    let pool = database("limit_pages_due").await;
    let (store, worker, _) = launching(&pool).await;
    pool.execute(LIMIT).await.unwrap();
    park(&pool, 2).await;
    let hour_ago = "
        UPDATE scoop.rate_window SET begun = jsonb_build_array(jsonb_build_array(micros, micros, 1)),
            opens_at = opens_at - interval '1 hour', idle_at = idle_at - interval '1 hour'
        FROM (SELECT (extract(epoch FROM now() - interval '1 hour') * 1000000)::bigint AS micros) begun
        WHERE key = '000002'";
    pool.execute(hour_ago).await.unwrap();
    look(&store, worker, &[], None).await;
    assert_eq!(parked(&pool).await, ["000001"]);
    done(pool).await;
}
