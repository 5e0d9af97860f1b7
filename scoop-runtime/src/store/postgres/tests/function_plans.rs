//! The statements inside the functions of the schema: each finds its rows by an index, and reads no more than these.
//!
//! `EXPLAIN` does not show them. So the functions are called on large tables; the server counts the scans of whole tables
//! and the blocks that were read. The rows of `blocking_rollbacks` and their order are compared with those of memory.

use sqlx::{AssertSqlSafe, PgConnection};

use super::super::pool::SESSION;
use super::super::{Schema, migrate};
use super::{database, done};

/// Five thousand hierarchies with a finished child each. The first ones have a run in execution, a failed child, a
/// rollback that failed, one that is about to, and one that had failed and is about to end.
const HIERARCHIES: &str = "
    INSERT INTO scoop.handler (topic, handler) VALUES ('many', 'many'), ('child', 'child'), ('scoop.failed', 'queue');
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5(kind || n)::uuid, kind, '{}' FROM generate_series(1, 5000) n, unnest('{many,child,as_new}'::text[]) kind;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at, exception)
    SELECT md5(message || n)::uuid, type::scoop.message_event_type, handler, step,
           array_remove(ARRAY[md5('root' || n)::uuid, CASE WHEN depth > 0 THEN md5('run' || n)::uuid END,
                              CASE WHEN depth > 1 THEN md5('child run' || n)::uuid END], NULL),
           now() + at * interval '1 microsecond', CASE type WHEN 'ROLLBACK_FAILED' THEN '{}'::jsonb END
    FROM generate_series(1, 5000) n
    CROSS JOIN LATERAL (VALUES
        (0, 'many', 'EMITTED', NULL, NULL, 0),
        (1, 'many', 'SEEN', 'many', NULL, 1),
        (2, 'child', 'EMITTED', 'many', 'step', 1),
        (3, 'many', 'SUSPENDED', 'many', 'step', 1),
        (4, 'child', 'SEEN', 'child', NULL, 2),
        (5, 'child', 'COMMITTED', 'child', 'step', 2),
        (6, 'many', 'ROLLING_BACK', 'many', 'step', 1),
        (7, 'many', 'ROLLBACK_FAILED', 'many', 'step', 1)
    ) events (at, message, type, handler, step, depth);
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT ARRAY[md5('root' || n)::uuid, md5('run' || n)::uuid], 'many', 'Output of step', '1'
    FROM generate_series(1, 5000) n;
    INSERT INTO scoop.execution (root, run, number, message_id, suspensions, began_at)
    SELECT md5('root' || n)::uuid, md5('run' || n)::uuid, 1, md5('anew' || n)::uuid, 1, now()
    FROM generate_series(1, 5000) n;
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT md5('root' || n)::uuid, md5('child run' || n)::uuid, md5('run' || n)::uuid,
           ARRAY[md5('root' || n)::uuid, md5('run' || n)::uuid, md5('child run' || n)::uuid], md5('child' || n)::uuid, 'child', 'child',
           'committed', now() + interval '5 us'
    FROM generate_series(1, 5000) n;
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, state, owner, epoch, rollback_failure, last_event_at)
    SELECT md5('root' || n)::uuid, md5(kind || n)::uuid,
           CASE kind WHEN 'failed child' THEN md5('run' || n)::uuid END,
           array_remove(ARRAY[md5('root' || n)::uuid, CASE WHEN kind IN ('run', 'failed child') THEN md5('run' || n)::uuid END,
                              CASE WHEN kind <> 'run' THEN md5(kind || n)::uuid END], NULL),
           md5(CASE kind WHEN 'failing' THEN 'child' ELSE 'many' END || n)::uuid, 'many', 'many',
           CASE kind WHEN 'failed child' THEN 'failed' ELSE 'running' END::scoop.run_state,
           CASE WHEN kind <> 'failed child' THEN gen_random_uuid() END, 1, CASE WHEN kind <> 'failing' THEN '{\"message\": \"m\"}'::jsonb END,
           now() + interval '1 minute'
    FROM generate_series(1, 5000) n, unnest('{run,failed child,failing,repaired}'::text[]) kind";

fn calls(n: u32) -> Vec<(&'static str, String)> {
    let send = |outcome: &str| {
        format!(
            "scoop.send_failed('{outcome}', md5('root{n}')::uuid, md5('run{n}')::uuid, 'many', md5('many{n}')::uuid, now(), \
             NULL, '{{\"message\": \"m\"}}', NULL)"
        )
    };
    // With all parts that a settlement can have.
    let settle = format!(
        "(SELECT count(*) FROM scoop.settle(jsonb_build_object(
            'root', md5('root{n}')::uuid, 'id', md5('run{n}')::uuid, 'epoch', 1, 'step', 'step', 'definition', 1,
            'iteration', 0, 'suspensions', 2, 'completions', '{{}}'::jsonb, 'outputs', '{{}}'::jsonb,
            'rolling_back', false, 'begins_rollback', false, 'event_count', 2, 'replied', false,
            'failure', '{{\"message\": \"m\"}}'::jsonb, 'failed', 'rolled_back', 'forgets', 'all',
            'deadlines', jsonb_build_array(now() + interval '1 hour'), 'may_give_up', true,
            'events', jsonb_build_array(
                jsonb_build_object('until_last', 1, 'message_id', md5('child{n}')::uuid, 'type', 'ROLLBACK_EMITTED',
                                   'step', 'step'),
                jsonb_build_object('until_last', 0, 'message_id', md5('many{n}')::uuid, 'type', 'SUSPENDED',
                                   'step', 'step')),
            'emissions', jsonb_build_array(jsonb_build_object(
                'id', md5('new{n}')::uuid, 'topic', 'child', 'payload', 1, 'at', 0)),
            'rollback_requests', jsonb_build_array(jsonb_build_object('message_id', md5('child{n}')::uuid, 'at', 0)),
            'rollback_cause', '{{}}'::jsonb,
            'return_values', jsonb_build_array(jsonb_build_object('name', 'Output of next', 'value', 1)),
            'wait', jsonb_build_object('signal', jsonb_build_object('name', 'signal', 'key', 'key')),
            'signals', jsonb_build_array(jsonb_build_object(
                'id', md5('signal{n}')::uuid, 'name', 'signal', 'key', 'key', 'payload', 1, 'keep', 60)),
            'as_new', jsonb_build_object('message', md5('newest{n}')::uuid, 'number', 2, 'payload', 1)
        ), 'worker', NULL))"
    );
    let ends = |kind: &str, message: &str, event: &str, ends: &str, failure: &str| {
        format!(
            "(SELECT count(*) FROM scoop.settle(jsonb_build_object(
                'root', md5('root{n}')::uuid, 'id', md5('{kind}{n}')::uuid, 'epoch', 1, 'ends', '{ends}', 'suspensions', 0,
                'rolling_back', true, 'begins_rollback', false, 'event_count', 1, 'replied', false, 'may_give_up', false,
                'failure', '{{\"message\": \"m\"}}'::jsonb, {failure}
                'events', jsonb_build_array(jsonb_build_object(
                    'until_last', 0, 'message_id', md5('{message}{n}')::uuid, 'type', '{event}', 'step', 'step'))
            ), 'worker', NULL))"
        )
    };
    let fails = ends(
        "failing",
        "child",
        "ROLLBACK_FAILED",
        "failed",
        "'rollback_failure', '{\"message\": \"m\"}'::jsonb,",
    );
    let launch = format!(
        "(scoop.launch(jsonb_build_array(jsonb_build_object(
            'id', md5('launched{n}')::uuid, 'root', gen_random_uuid(), 'topic', 'many', 'payload', 1,
            'context', '{{}}'::jsonb)))).launched"
    );
    let below = format!(
        "(SELECT count(*) FROM scoop.failed_below(md5('root{n}')::uuid, md5('run{n}')::uuid, 11, 500))"
    );
    let found_by = format!(
        "(SELECT count(*) FROM scoop.record_found_by(
            ARRAY[md5('many{n}')::uuid], ARRAY[0::smallint], ARRAY['order'], ARRAY['7'::jsonb]))"
    );
    vec![
        ("record_found_by", found_by),
        ("send_failed(rolled_back)", send("rolled_back")),
        ("send_failed(rollback_failed)", send("rollback_failed")),
        ("send_failed(stuck)", send("stuck")),
        ("failed_children", format!("scoop.failed_children(md5('root{n}')::uuid, md5('run{n}')::uuid)")),
        ("settle", settle),
        ("settle(rollback failed)", fails),
        ("settle(failed rollback repaired)", ends("repaired", "many", "ROLLED_BACK", "unnoted", "")),
        ("launch", launch),
        ("failed_below", below),
    ]
}

/// Thirty thousand runs of a saga whose queue is limited: some wait, some are parked, some sleep.
const QUEUE: &str = "
    INSERT INTO scoop.run_limit (saga, handlers, queue) VALUES ('queued', '{former,queued}', 60);
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, state, ready_at, limit_key, parked_since, last_event_at)
    SELECT md5('root' || n)::uuid, md5('run' || n)::uuid, '{}', md5('message' || n)::uuid, 'queued',
           CASE n % 3 WHEN 0 THEN 'former' ELSE 'queued' END, 'ready',
           CASE n % 3 WHEN 0 THEN now() + interval '1 day' WHEN 1 THEN now() - interval '1 day' ELSE '9999-12-31Z' END,
           CASE n % 3 WHEN 2 THEN 'key' END, CASE n % 3 WHEN 2 THEN now() END, now()
    FROM generate_series(1, 30000) n";

#[tokio::test]
async fn count_of_a_queue_reads_no_more_runs_than_the_limit() {
    const BLOCKS_MAX: i64 = 250;
    let pool = database("queue_lengths").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute("VACUUM ANALYZE").await;
    execute(QUEUE).await;
    for tables in ["large tables that were looked at when they were empty", "large tables"] {
        if tables == "large tables" {
            execute("VACUUM ANALYZE").await;
        }
        let mut connection = pool.acquire().await.unwrap().detach();
        sqlx::raw_sql(SESSION).execute(&mut connection).await.unwrap();
        sqlx::raw_sql("BEGIN").execute(&mut connection).await.unwrap();
        // Waiting and parked runs count, sleeping ones do not.
        for (handler, expected) in [("queued", 20_000_i64), ("former", 0)] {
            let count = format!("SELECT scoop.waiting_runs('{{{handler}}}', 100000)");
            let count: i64 =
                sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(&mut connection).await.unwrap();
            assert_eq!(count, expected, "{handler}");
        }
        let blocks = blocks_of(&mut connection, "scoop.waiting_runs('{former,queued}', 60)").await;
        assert!((20..BLOCKS_MAX).contains(&blocks), "with {tables}, a count read {blocks} blocks");
        let read = "SELECT relname::text FROM pg_stat_xact_user_tables WHERE seq_scan > 0";
        let read: Vec<String> = sqlx::query_scalar(read).fetch_all(&mut connection).await.unwrap();
        assert!(read.is_empty(), "with {tables}, it read all of {read:?}");
        sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.unwrap();
    }
    done(pool).await;
}

async fn blocks_of(connection: &mut PgConnection, call: &str) -> i64 {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT {call}");
    let row = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_one(&mut *connection).await.unwrap();
    let plan: serde_json::Value = sqlx::Row::get(&row, 0);
    let blocks = |key: &str| plan[0]["Plan"][key].as_i64().unwrap();
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

#[tokio::test]
async fn every_statement_inside_a_function_uses_an_index() {
    /// Far less than one of the tables or of their indexes.
    const BLOCKS_MAX: i64 = 250;
    let pool = database("functions").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute("VACUUM ANALYZE").await;
    execute(HIERARCHIES).await;
    for tables in ["large tables that were looked at when they were empty", "large tables"] {
        if tables == "large tables" {
            execute("VACUUM ANALYZE").await;
        }
        let mut connection = pool.acquire().await.unwrap().detach();
        sqlx::raw_sql(SESSION).execute(&mut connection).await.unwrap();
        sqlx::raw_sql("BEGIN").execute(&mut connection).await.unwrap();
        // The first calls read the catalog, too.
        for (_, call) in calls(1) {
            blocks_of(&mut connection, &call).await;
        }
        for (name, call) in calls(2) {
            let blocks = blocks_of(&mut connection, &call).await;
            assert!(blocks < BLOCKS_MAX, "with {tables}, {name} read {blocks} blocks");
            assert!(blocks > 0, "{name} did nothing");
        }
        let read = "SELECT relname::text FROM pg_stat_xact_user_tables WHERE seq_scan > 0";
        let read: Vec<String> = sqlx::query_scalar(read).fetch_all(&mut connection).await.unwrap();
        assert!(read.is_empty(), "with {tables}, they read all of {read:?}");
        let sent = "SELECT count(*) FROM scoop.message WHERE topic = 'scoop.failed'";
        let sent: i64 = sqlx::query_scalar(sent).fetch_one(&mut connection).await.unwrap();
        assert_eq!(sent, 2 * 4, "each call sent its message");
        let listed = "SELECT array_agg(kind || n ORDER BY kind, n)
                      FROM generate_series(1, 3) n CROSS JOIN unnest('{failing,repaired}'::text[]) kind
                      JOIN scoop.run r ON r.id = md5(kind || n)::uuid AND r.root = md5('root' || n)::uuid
                      WHERE r.rollback_failure IS NOT NULL";
        let listed: Vec<String> = sqlx::query_scalar(listed).fetch_one(&mut connection).await.unwrap();
        assert_eq!(
            listed,
            ["failing1", "failing2", "repaired3"],
            "those that failed, and that were not repaired"
        );
        sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.unwrap();
    }
    done(pool).await;
}
