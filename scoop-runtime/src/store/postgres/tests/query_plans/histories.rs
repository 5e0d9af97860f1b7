//! Plans of statements about runs with a long history.

use super::*;

/// A run of two thousand steps, each with two children of two thousand runs; the newest child has gone through two
/// thousand steps itself, and replied.
const LONG_RUN: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5('message' || n)::uuid, 'asked', '{}' FROM generate_series(0, 4000) n;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at)
    SELECT md5('message' || m)::uuid, type::scoop.message_event_type, handler, 'step',
           array_remove(ARRAY[md5('root')::uuid, md5('run')::uuid, child], NULL), '2020-01-01'::timestamptz + n * interval '1 minute' + after
    FROM generate_series(1, 4000) n
    CROSS JOIN LATERAL (VALUES
        ('EMITTED', 'saga', n, NULL::uuid, interval '0'),
        ('SEEN', 'child', n, md5('child' || n)::uuid, interval '2 seconds'),
        ('COMMITTED', 'child', n, md5('child' || n)::uuid, interval '3 seconds'),
        (CASE WHEN n % 2 = 0 THEN 'SUSPENDED' END, 'saga', 0, NULL, interval '1 second')
    ) events (type, handler, m, child, after)
    WHERE type IS NOT NULL;
    INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT md5('root')::uuid, md5('child' || n)::uuid, md5('run')::uuid,
           ARRAY[md5('root')::uuid, md5('run')::uuid, md5('child' || n)::uuid], md5('message' || n)::uuid, 'asked', 'child',
           'committed', '2020-01-01'::timestamptz + n * interval '1 minute' + interval '3 seconds'
    FROM generate_series(1, 4000) n;
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT ARRAY[md5('root')::uuid, md5('run')::uuid, md5('child4000')::uuid], 'child', name, '7'
    FROM (SELECT 'Output of step#' || n AS name FROM generate_series(1, 2000) n UNION ALL SELECT 'u32') names";

#[tokio::test]
async fn replies_of_the_last_step_cost_the_same_after_a_long_history() {
    let pool = database("replies").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute(LONG_RUN).await;
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE").await;
        }
        let asked =
            |last: bool| format!("NULL, md5('run')::uuid, 'saga', {last}, '{{}}', 'asked', true, NULL");
        let of_last_step = blocks_of(&pool, "run_children", &asked(true)).await;
        let of_all = blocks_of(&pool, "run_children", &asked(false)).await;
        assert!(of_all > 2_000, "{of_all} blocks: the history is not that long");
        assert!(of_last_step < 100, "{of_last_step} blocks, analyzed: {looked_at}");
    }
    done(pool).await;
}

/// Loops of 2,000 and of 20,000 iterations, each with a message and a value, and a step before them with a value. Of
/// half of the second the rollback is done, and its newest part names a window of ten iterations.
const LOOPS: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5(size || 'message' || n)::uuid, 'asked', '{}'
    FROM (VALUES (2000), (20000)) runs (size), generate_series(0, size) n;
    INSERT INTO scoop.message_event
        (message_id, type, coroutine_name, step, cooperation_lineage, created_at, jump)
    SELECT md5(size || 'message' || n)::uuid, type::scoop.message_event_type, 'saga', step,
           ARRAY[md5('root' || size)::uuid, md5('run' || size)::uuid],
           '2020-01-01Z'::timestamptz + at * interval '1 second', jump
    FROM (VALUES (2000), (20000)) runs (size), generate_series(0, size) n
    CROSS JOIN LATERAL (VALUES
        ('EMITTED', 'turn', 2 * n, NULL),
        ('SUSPENDED', CASE WHEN n = 0 THEN 'first' ELSE 'turn' END, 2 * n + 1, NULL),
        (CASE WHEN n >= size / 2 THEN 'SUSPENDED' END, 'Rollback of turn[' || n - 1 || ',]', 4 * size - n,
         json_build_object(
             'before', json_build_object('until', 1577836800000000 + (2 * (n - 9) - 1) * 1000000::bigint,
                                         'instances', n - 9, 'runs', json_build_object('turn', n - 10)),
             'until', 1577836800000000 + (2 * n + 1) * 1000000::bigint, 'later', '[]'::json)::text)
    ) events (type, step, at, jump)
    WHERE type IS NOT NULL;
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT ARRAY[md5('root' || size)::uuid, md5('run' || size)::uuid], 'saga',
           'Output of ' || CASE WHEN n = 0 THEN 'first' ELSE 'turn' END || '#' || lpad(n::text, 10, '0'), n::text::jsonb
    FROM (VALUES (2000), (20000)) runs (size), generate_series(0, size) n";

#[tokio::test]
async fn a_part_of_a_rollback_costs_the_same_after_a_long_history() {
    let pool = database("windows").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute(LOOPS).await;
    let run = |size| format!("md5('run{size}')::uuid");
    let at = |second| format!("'2020-01-01Z'::timestamptz + {second} * interval '1 second'");
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE").await;
        }
        for size in [2_000, 20_000] {
            let run = run(size);
            let newest = format!("{run}, 'saga', 'Rollback of ', 100, NULL");
            let older = format!("{run}, 'saga', 'Rollback of ', 100, {}", at(size));
            let other = format!("{run}, 'saga', {}, '{{other}}', NULL", at(size));
            let values = format!(
                "{run}, 'saga', '{{Output of turn#0000001000,Output of turn#0000000999}}', \
                 '{{Output of turn#0000000000,Output of first#0000000000,Output of other#0000000000}}', \
                 '{{Output of turn#0000000998,Output of first#0000000998,Output of other#0000000998}}'",
            );
            for (statement, asked, at_most) in [
                ("run_history", &newest, 80),
                ("run_history", &older, 150),
                ("run_count_repetitions", &other, 20),
                ("run_values", &values, 40),
            ] {
                let blocks = blocks_of(&pool, statement, asked).await;
                assert!(blocks < at_most, "{statement} of {size}: {blocks} blocks, analyzed: {looked_at}");
            }
            let all = format!("{run}, 'saga', {}, NULL", at(4 * size));
            let blocks = blocks_of(&pool, "run_count_parts", &all).await;
            assert!(blocks > 20, "run_count_parts of {size}: {blocks} blocks: the history is not that long");
        }
    }
    done(pool).await;
}

/// A run of a hundred thousand executions, each with a step that launches a message and returns a value, and one that goes
/// on anew. With fewer, the planner takes no tree for a large one.
const ENDLESS: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5('message' || n)::uuid, 'feeds', '{}' FROM generate_series(0, 100000) n;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at)
    SELECT md5('message' || CASE type WHEN 'EMITTED' THEN n ELSE 0 END)::uuid, type::scoop.message_event_type,
           'saga', step, ARRAY[md5('root')::uuid, md5('run')::uuid],
           '2020-01-01Z'::timestamptz + n * interval '1 second' + at * interval '1 microsecond'
    FROM generate_series(0, 100000) n
    CROSS JOIN LATERAL (VALUES
        (1, CASE WHEN n = 0 THEN 'SEEN' END, NULL), (2, CASE WHEN n > 0 THEN 'EMITTED' END, 'fetch'),
        (3, 'SUSPENDED', 'fetch'), (4, 'SUSPENDED', 'turn')
    ) events (at, type, step)
    WHERE type IS NOT NULL;
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT ARRAY[md5('root')::uuid, md5('run')::uuid], 'saga', 'Output of fetch#' || lpad((2 * n)::text, 10, '0'), '1'
    FROM generate_series(0, 100000) n;
    INSERT INTO scoop.execution (root, run, number, message_id, suspensions, began_at)
    SELECT md5('root')::uuid, md5('run')::uuid, n, md5('message' || n)::uuid, 2 * n,
           '2020-01-01Z'::timestamptz + (n - 1) * interval '1 second' + 4 * interval '1 microsecond'
    FROM generate_series(1, 100000) n";

#[tokio::test]
async fn an_execution_costs_the_same_after_many_others() {
    let pool = database("executions").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute(ENDLESS).await;
    let began_at = "'2020-01-01Z'::timestamptz + 99999 * interval '1 second'";
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE").await;
        }
        let children = format!("NULL, md5('run')::uuid, 'saga', false, '{{}}', NULL, false, {began_at}");
        for (statement, asked) in [
            ("run_history", "md5('run')::uuid, 'saga', 'Rollback of ', 100, NULL"),
            ("run_children", &*children),
            ("run_tree", &*format!("md5('message0')::uuid, {WHOLE_TREE}")),
        ] {
            let plan = carried_out(&pool, statement, asked).await;
            let blocks = blocks_read(&plan);
            assert!(blocks < 120, "{statement}: {blocks} blocks, analyzed: {looked_at}, in {plan:#}");
        }
    }
    all_look_up(&pool, "one run that has most of the events").await;
    done(pool).await;
}
