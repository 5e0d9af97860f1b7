//! Plans of rebuilds.

use super::*;

/// Hierarchies that are at rest: committed, rolled back, or with a child; and one that is not.
const AT_REST: &str = "
    INSERT INTO scoop.handler (topic, handler) VALUES ('many', 'many');
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5('message' || n)::uuid, 'many', '{}' FROM generate_series(0, 5000) n;
    INSERT INTO scoop.message_event
        (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at, context)
    SELECT md5('message' || n)::uuid, type::scoop.message_event_type, handler, worker, step,
           array_remove(ARRAY[md5('root' || n)::uuid, CASE WHEN handler IS NOT NULL THEN md5('run' || n)::uuid END], NULL),
           now() + at * interval '1 second', jsonb_build_object('Note', repeat('x', 700) || n)
    FROM generate_series(0, 5000) n
    CROSS JOIN LATERAL (VALUES
        ('EMITTED', NULL, NULL, NULL, 0),
        ('SEEN', 'many', 'a test', NULL, 1),
        ('SUSPENDED', 'many', 'a test', 'step', 2),
        (CASE WHEN n = 0 THEN NULL WHEN n % 2 = 0 THEN 'COMMITTED' ELSE 'ROLLING_BACK' END, 'many', 'a test', 'step', 3),
        (CASE WHEN n % 2 = 1 THEN 'ROLLED_BACK' END, 'many', 'a test', 'step', 4)
    ) events (type, handler, worker, step, at)
    WHERE type IS NOT NULL";

/// Hierarchies none of which is at rest: a run with a child failed to roll back, and failed again. Of each tenth, no
/// run has begun, and one handler of many listens. The tables were empty at the last ANALYZE.
const DAMAGED: &str = "
    INSERT INTO scoop.handler (topic, handler, since)
    SELECT 'many' || n, 'many', now() - interval '1 day' FROM generate_series(0, 50) n;
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5('message' || n)::uuid, 'many1', '{}'::jsonb FROM generate_series(1, 2000) n
    UNION ALL SELECT md5('child' || n)::uuid, 'many2', '{}' FROM generate_series(1, 2000) n;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at, exception)
    SELECT md5(message || n)::uuid, type::scoop.message_event_type, handler, step,
           array_remove(ARRAY[md5('root' || n)::uuid, CASE WHEN depth > 0 THEN md5('run' || n)::uuid END,
                              CASE WHEN depth > 1 THEN md5('child run' || n)::uuid END], NULL),
           now() + at * interval '1 second', CASE type WHEN 'ROLLBACK_FAILED' THEN '{}'::jsonb END
    FROM generate_series(1, 2000) n
    CROSS JOIN LATERAL (VALUES
        ('message', 'EMITTED', NULL, NULL, 0, 0),
        ('message', 'SEEN', 'many', NULL, 1, 1),
        ('child', 'EMITTED', 'many', 'step', 1, 2),
        ('message', 'SUSPENDED', 'many', 'step', 1, 3),
        ('child', 'SEEN', 'many', NULL, 2, 4),
        ('child', 'COMMITTED', 'many', 'step', 2, 5),
        ('message', 'ROLLING_BACK', 'many', 'step', 1, 6),
        ('message', 'ROLLBACK_FAILED', 'many', 'step', 1, 7)
    ) events (message, type, handler, step, depth, at)
    WHERE n % 10 > 0 OR at = 0;
    INSERT INTO scoop.repeated_failure (root, run, handler, message_id, worker, step, exception, failed_at)
    SELECT md5('root' || n)::uuid, md5('run' || n)::uuid, 'many', md5('message' || n)::uuid, 'worker', 'step', '{}',
           now() + interval '1 minute'
    FROM generate_series(1, 2000) n;
    INSERT INTO scoop.redelivery (message_id, root, redelivered_at)
    SELECT md5('message' || n)::uuid, md5('root' || n)::uuid, now() FROM generate_series(1, 2000) n";

#[tokio::test]
async fn rebuild_of_tables_that_were_analyzed_empty_looks_up_each_row() {
    let pool = database("damaged").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute("VACUUM ANALYZE").await;
    execute(DAMAGED).await;
    let statements = Statements::of(&Schema::new("scoop").unwrap()).all();
    let (_, text) = statements.iter().find(|(name, _)| *name == "rebuild_events").unwrap();
    let explain = format!("{SESSION}; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}", text.as_str());
    let plan = explained(&pool, explain).await;
    let events = 1_800 * 8 + 200;
    assert_eq!(plan["Actual Rows"].as_f64(), Some(f64::from(events + 1_800)), "with the repeated failures");
    let of_each = blocks_read(&plan) / i64::from(events);
    assert!(of_each < 40, "{of_each} blocks for each event");
    done(pool).await;
}

#[tokio::test]
async fn rebuild_reads_hierarchies_that_are_not_at_rest() {
    let pool = database("at_rest").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute(AT_REST).await;
    let statements = Statements::of(&Schema::new("scoop").unwrap()).all();
    let (_, text) = statements.iter().find(|(name, _)| *name == "rebuild_events").unwrap();
    let explain = format!("{SESSION}; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}", text.as_str());
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE").await;
        }
        let plan = explained(&pool, explain.clone()).await;
        assert_eq!(plan["Actual Rows"].as_f64(), Some(3.0), "the events of the one that is not at rest");
        let table = "SELECT pg_relation_size('scoop.message_event') / current_setting('block_size')::int";
        let table: i64 = sqlx::query_scalar(table).fetch_one(&pool).await.unwrap();
        let blocks = blocks_read(&plan);
        assert!(!looked_at || blocks < table / 5, "{blocks} blocks read, the table has {table}");
    }
    done(pool).await;
}
