//! Reads of the limits of all sagas: their cost, and rows that other programs have written.

use super::*;
use crate::model::limits::{Limit, Limits};
use crate::store::{DefinitionStorage as _, HandlerList, LimitStorage as _, LimitedSaga, SagaLimit};

/// Many subscriptions, and many limits of sagas with a former name; the limits of each tenth saga are by key.
const MANY: &str = "
    INSERT INTO scoop.handler (topic, handler) SELECT 't' || n % 100, 'h' || n FROM generate_series(1, 20000) n;
    INSERT INTO scoop.run_limit (saga, handlers, concurrency, concurrency_by_key, key_from, queue)
    SELECT 'h' || n, ARRAY['h' || n, 'former' || n], n, n % 10 = 0, CASE WHEN n % 10 = 0 THEN 'k' END, 5
    FROM generate_series(1, 2000) n";

/// Parked runs of sagas whose limits are not by key.
const PARKED: &str = "
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, ready_at, parked_since, limit_key, last_event_at)
    SELECT root, id, ARRAY[root, id], root, 't1', 'h' || n, 'ready', '9999-12-31', now(), 'k', now()
    FROM generate_series(1, 2000) n
    CROSS JOIN LATERAL (SELECT md5('root' || n)::uuid AS root, md5('run' || n)::uuid AS id) ids";

/// Many parked runs of a few keys, and a due one. The index of ready runs is the smaller one: in it the parked ones are equal.
const PARKED_OF_FEW_KEYS: &str = "
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, ready_at, parked_since, limit_key, last_event_at)
    SELECT root, id, ARRAY[root, id], root, 'a', 'saga', 'ready', CASE WHEN n > 0 THEN '9999-12-31' ELSE now() END,
           CASE WHEN n > 0 THEN now() - n * interval '1 millisecond' END, 'k' || n % 10, now()
    FROM generate_series(0, 20000) n
    CROSS JOIN LATERAL (SELECT md5('root' || n)::uuid AS root, md5('run' || n)::uuid AS id) ids";

/// Rows that the tables accept, together larger than the largest JSON value of the server: each lists a thousand names.
const FORGED: &str = "
    INSERT INTO scoop.run_limit (saga, handlers, concurrency)
    SELECT 'forged' || n, array_fill(repeat('x', 262), ARRAY[999]) || 'other'::text, 1 FROM generate_series(1, 1100) n";

/// All rows that a statement goes through, also those that it drops.
async fn rows_gone_through(pool: &PgPool, text: String) -> f64 {
    fn count(plan: &serde_json::Value) -> f64 {
        let number = |key: &str| plan[key].as_f64().unwrap_or_default();
        let each =
            number("Actual Rows") + number("Rows Removed by Filter") + number("Rows Removed by Join Filter");
        let parts = plan["Plans"].as_array();
        each * number("Actual Loops") + parts.map_or(0.0, |parts| parts.iter().map(count).sum())
    }
    let mut connection = pool.acquire().await.unwrap();
    let explain = format!("{}; {text}", super::super::pool::SESSION);
    let plan = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_one(&mut *connection).await.unwrap();
    let plan: serde_json::Value = sqlx::Row::get(&plan, 0);
    connection.close().await.unwrap();
    count(&plan[0]["Plan"])
}

/// The statements that explain another one, with values for its parameters. The session that executes them has no effect.
fn explained(store: &PostgresStore, name: &str, (types, values): (&str, &str)) -> String {
    const EXPLAIN: &str = "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON)";
    let statements = store.sql.all();
    let (_, text) = statements.iter().find(|(it, _)| *it == name).expect("there is such a statement");
    match types {
        "" => format!("BEGIN; {EXPLAIN} {}", text.as_str()),
        types => format!("BEGIN; PREPARE p ({types}) AS {}; {EXPLAIN} EXECUTE p ({values})", text.as_str()),
    }
}

#[tokio::test]
async fn limits_of_many_sagas_are_joined_once_with_their_names() {
    let pool = database("limit_reads").await;
    let (store, ..) = launching(&pool).await;
    let names: Vec<_> = (1..=2_000).map(|n| format!("h{n}")).collect();
    let names = format!("'{{{}}}'", names.join(","));
    let statements = [
        ("handler_list", ("text, text, text, bigint, text, text", "'', '', '', NULL, NULL, NULL")),
        ("topology_read", ("text[]", &*names)),
        ("limit_list", ("text[]", &*names)),
        ("limit_unpark_orphaned", ("bigint", "1")),
    ];
    for tables in ["never looked at", "looked at"] {
        if tables == "looked at" {
            pool.execute("VACUUM ANALYZE").await.unwrap();
        } else {
            sqlx::raw_sql(MANY).execute(&pool).await.unwrap();
            sqlx::raw_sql(PARKED).execute(&pool).await.unwrap();
        }
        for (name, values) in statements {
            let gone_through = rows_gone_through(&pool, explained(&store, name, values)).await;
            assert!(gone_through < 500_000.0, "{name}, tables that were {tables}: {gone_through} rows");
        }
    }
    done(pool).await;
}

#[tokio::test]
async fn page_of_keys_reads_no_more_than_its_keys() {
    let pool = database("limit_page_reads").await;
    let (store, ..) = launching(&pool).await;
    super::limit_pages::park(&pool, 20_000).await;
    let types = "text[], text[], int[], text, bigint, text, bigint";
    let page = (types, "'{a,b}', '{saga,saga}', '{0,0}', '005000', 1001, 'saga', 7200000");
    for tables in ["never looked at", "looked at"] {
        if tables == "looked at" {
            pool.execute("VACUUM ANALYZE").await.unwrap();
        }
        let gone_through = rows_gone_through(&pool, explained(&store, "limit_list_keys", page)).await;
        assert!(gone_through < 30_000.0, "tables that were {tables}: {gone_through} rows");
    }
    done(pool).await;
}

#[tokio::test]
async fn claim_under_a_limit_by_key_reads_no_more_parked_runs_than_it_returns() {
    let pool = database("limit_parked_reads").await;
    let (store, ..) = launching(&pool).await;
    sqlx::raw_sql(PARKED_OF_FEW_KEYS).execute(&pool).await.unwrap();
    let statements = [
        (
            "limit_candidates",
            (
                "text[], text[], int[], bigint, uuid[], bigint, timestamptz[], timestamptz[], timestamptz[], text[], timestamptz[], boolean[]",
                "'{a}', '{saga}', '{0}', 10, NULL, 1000000, '{NULL}', '{NULL}', '{NULL}', '{}', '{}', '{false}'",
            ),
        ),
        (
            "limit_list_keys",
            (
                "text[], text[], int[], text, bigint, text, bigint",
                "'{a}', '{saga}', '{0}', '', 1001, 'saga', 7200000",
            ),
        ),
        (
            "limit_unpark",
            (
                "text[], text[], int[], text[], bigint[], timestamptz[], boolean[]",
                "'{a}', '{saga}', '{0}', '{k1}', '{1}', '{NULL}', '{false}'",
            ),
        ),
        ("limit_unpark_orphaned", ("bigint", "1")),
    ];
    for tables in ["never looked at", "looked at"] {
        if tables == "looked at" {
            pool.execute("VACUUM ANALYZE").await.unwrap();
        }
        for (name, values) in statements {
            let gone_through = rows_gone_through(&pool, explained(&store, name, values)).await;
            assert!(gone_through < 500.0, "{name}, tables that were {tables}: {gone_through} rows");
        }
    }
    done(pool).await;
}

#[tokio::test]
async fn handler_that_several_limits_name_has_the_first_one() {
    let pool = database("limit_first").await;
    let (store, ..) = launching(&pool).await;
    sqlx::raw_sql(
        "INSERT INTO scoop.run_limit (saga, handlers, concurrency, queue)
         SELECT saga, handlers::text[], concurrency, 5 FROM (VALUES
             ('saga', '{saga}', 3), ('another', '{other,saga,saga}', 2), ('b', '{saga}', 1)
         ) limits (saga, handlers, concurrency)",
    )
    .execute(&pool)
    .await
    .unwrap();
    let listed = store.list_handlers(&HandlerList::default()).await.unwrap();
    let limits: Vec<_> =
        listed.iter().map(|it| (&*it.handler, it.limits.concurrency.map(|it| it.most))).collect();
    assert_eq!(limits, [("saga", Some(2))]);
    let topology = store.read_topology(&["saga".into(), "none".into()]).await.unwrap();
    let first = LimitedSaga { saga: "another".into(), handlers: vec!["saga".into()], key_from: None };
    assert_eq!(topology.limited, [first]);
    assert_eq!(topology.limited_topics, [("a".to_owned(), vec!["another".to_owned()])].into());
    done(pool).await;
}

#[tokio::test]
async fn limits_of_others_cost_a_program_nothing_but_their_lookup() {
    let pool = database("limit_forged").await;
    let (store, worker, _) = launching(&pool).await;
    sqlx::raw_sql(FORGED).execute(&pool).await.unwrap();
    let concurrency = Some(Limit { most: 1, is_by_key: false });
    let limits = Limits { concurrency, ..Limits::default() };
    let own = SagaLimit { saga: "saga".into(), was: vec!["former".into()], limits };
    store.publish_limits(std::slice::from_ref(&own)).await.unwrap();
    // The second time there is nothing to change.
    store.publish_limits(&[own]).await.unwrap();
    let topology = store.read_topology(&["saga".into()]).await.unwrap();
    assert_eq!(topology.living.iter().map(|living| living.id).collect::<Vec<_>>(), [worker]);
    let limited: Vec<_> = topology.limited.iter().map(|it| (&*it.saga, &*it.handlers)).collect();
    assert_eq!(limited, [("saga", &["saga".to_owned()][..])]);
    done(pool).await;
}
