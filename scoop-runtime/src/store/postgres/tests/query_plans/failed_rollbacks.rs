//! Plans of statements about failed rollbacks.

use super::*;

/// A failed run, and `{of}` failed children that it launched: every second one during its rollback, and all others
/// before that.
const FAILED_CHILDREN: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5('{of} message' || n)::uuid, 'many', '{}' FROM generate_series(0, {of}) n;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at, exception)
    SELECT md5('{of} message' || n)::uuid, type::scoop.message_event_type, handler, step,
           array_remove(ARRAY[md5('{of}')::uuid, CASE WHEN depth > 0 THEN md5('{of} run')::uuid END,
                              CASE WHEN depth > 1 THEN md5('{of} run' || n)::uuid END], NULL),
           now() + at * interval '1 second', CASE type WHEN 'ROLLBACK_FAILED' THEN '{}'::jsonb END
    FROM generate_series(0, {of}) n
    CROSS JOIN LATERAL (VALUES
        (true, 'EMITTED', NULL, NULL, 0, 0),
        (true, 'SEEN', 'many', NULL, 1, 1),
        (true, 'SUSPENDED', 'many', 'step', 1, 2),
        (true, 'ROLLING_BACK', 'many', 'step', 1, 4),
        (true, 'ROLLBACK_FAILED', 'many', 'step', 1, 10),
        (false, 'EMITTED', 'many', 'step', 1, CASE WHEN n % 2 = 0 THEN 5 ELSE 3 END),
        (false, 'SEEN', 'many', NULL, 2, 6),
        (false, 'SUSPENDED', 'many', 'step', 2, 7),
        (false, 'ROLLING_BACK', 'many', 'step', 2, 8),
        (false, 'ROLLBACK_FAILED', 'many', 'step', 2, 9)
    ) events (is_above, type, handler, step, depth, at)
    WHERE is_above = (n = 0);
    INSERT INTO scoop.rollback_failure
    SELECT f.* FROM scoop.recorded_rollback_failure f WHERE f.root = md5('{of}')::uuid";

#[tokio::test]
async fn failed_rollbacks_of_a_hierarchy_cost_in_proportion_to_their_number() {
    let pool = database("failed_children").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    execute("VACUUM ANALYZE".into()).await;
    for children in [1_000, 4_000] {
        execute(FAILED_CHILDREN.replace("{of}", &children.to_string())).await;
    }
    let statements = Statements::of(&Schema::new("scoop").unwrap()).all();
    let (_, text) = statements.iter().find(|(name, _)| *name == "rollback_failure_of_hierarchy").unwrap();
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE".into()).await;
        }
        let mut costs = vec![];
        for children in [1_000, 4_000] {
            let prepare = format!("{SESSION}; PREPARE p (uuid, text) AS {}", text.as_str());
            let root = format!("md5('{children}')::uuid, 'operator'");
            let explain = format!("{prepare}; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE p ({root})");
            let plan = explained(&pool, explain).await;
            assert_eq!(plan["Actual Rows"].as_f64(), Some(f64::from(children + 1)));
            costs.push((blocks_read(&plan), rows_handled(&plan)));
        }
        let [(blocks, rows), (more_blocks, more_rows)] = *costs else { panic!() };
        assert!(more_blocks < blocks * 5, "{costs:?} blocks and rows, analyzed: {looked_at}");
        assert!(more_rows < rows * 5.0, "{costs:?} blocks and rows, analyzed: {looked_at}");
    }
    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    let root: Uuid = sqlx::query_scalar("SELECT md5('1000')::uuid").fetch_one(&pool).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let (failed, _) = store.failed_rollbacks(&mut connection, root).await.unwrap();
    // An explanation reads those that it names.
    for children in [1_000, 4_000] {
        let run = format!("md5('{children}')::uuid, md5('{children} run')::uuid, false, 11");
        let plan = carried_out(&pool, "rollback_failure_below", &run).await;
        assert_eq!(plan["Actual Rows"].as_f64(), Some(11.0));
        let blocks = blocks_read(&plan);
        assert!(blocks < 2_000, "{blocks} blocks of {children} in {plan:#}");
    }
    let compensations = failed.ids().into_iter().filter(|run| failed.get(*run).unwrap().compensates);
    assert_eq!(compensations.count(), 500, "those that were launched during the rollback");
    drop(connection);
    done(pool).await;
}

/// A chain of `{of}` runs, each of which failed because of the next one. A repair of the last one is in progress.
const REPAIRED_CHAIN: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5('{of} message' || n)::uuid, 'many', '{}' FROM generate_series(1, {of}) n;
    WITH chain AS MATERIALIZED (
        SELECT n, md5('{of} message' || n)::uuid AS message, ARRAY(
            SELECT md5('{of} run' || above)::uuid FROM generate_series(0, n) above ORDER BY above) AS lineage
        FROM generate_series(1, {of}) n
    ),
    events AS (
        INSERT INTO scoop.message_event
            (message_id, type, coroutine_name, step, cooperation_lineage, created_at, exception)
        SELECT message, type::scoop.message_event_type, 'many', 'step', lineage,
               now() + ({of} + at) * interval '1 second' - n * interval '1 millisecond',
               CASE type WHEN 'ROLLBACK_FAILED' THEN '{}'::jsonb END
        FROM chain, (VALUES ('SEEN', 1), ('SUSPENDED', 1001), ('ROLLING_BACK', 2001), ('ROLLBACK_FAILED', 3001))
            events (type, at)
    )
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, state, owner, epoch, rollback_failed_before, last_event_at)
    SELECT lineage[1], lineage[n + 1], CASE WHEN n > 1 THEN lineage[n] END, lineage, message, 'many', 'many',
           CASE WHEN n < {of} THEN 'waiting' ELSE 'running' END::scoop.run_state,
           CASE WHEN n = {of} THEN message END, 1, true, now()
    FROM chain;
    INSERT INTO scoop.rollback_failure
    SELECT f.* FROM scoop.recorded_rollback_failure f WHERE f.root = md5('{of} run0')::uuid";

/// The repairs of all those chains fail again.
const FAILED_AGAIN: &str = "
    UPDATE scoop.run
    SET state = CASE state WHEN 'running' THEN 'stuck' ELSE state END, owner = NULL, awaits_operator = true
    WHERE rollback_failed_before";

#[tokio::test]
async fn page_of_failed_rollbacks_reads_each_run_below_its_rows_once() {
    let pool = database("failed_chain").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    execute("VACUUM ANALYZE".into()).await;
    let mut costs = vec![];
    for runs in [250, 1_000] {
        execute(REPAIRED_CHAIN.replace("{of}", &runs.to_string())).await;
        for looked_at in [false, true] {
            if looked_at {
                execute("VACUUM ANALYZE".into()).await;
            }
            let mut blocks = vec![];
            for rows in [5, 50] {
                let values = format!("NULL, NULL, {rows}, 10");
                let plan = carried_out(&pool, "rollback_failure_page", &values).await;
                assert_eq!(plan["Actual Rows"].as_f64(), Some(f64::from(rows)));
                blocks.push(blocks_read(&plan));
            }
            assert!(blocks[1] < 2 * blocks[0], "{blocks:?} blocks of {runs} runs, analyzed: {looked_at}");
            costs.push(blocks[1]);
        }
    }
    assert!(costs[3] < 5 * costs[1], "{costs:?} blocks");

    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    let statuses = async || {
        let page = store.failed_compensations(Page { after: None, limit: 50 }).await.unwrap();
        let statuses = page.into_iter().map(|failed| (failed.status, failed.failed_below));
        statuses.collect::<Vec<(RepairStatus, Vec<RunId>)>>()
    };
    let in_progress = (RepairStatus::InProgress, vec![]);
    assert_eq!(statuses().await, vec![in_progress; 50]);
    // The repair fails again.
    execute(FAILED_AGAIN.into()).await;
    let again = "
        INSERT INTO scoop.repeated_failure (root, run, handler, message_id, worker, step, exception, failed_at)
        SELECT r.root, r.id, r.handler, r.message_id, 'a test', 'step',
               jsonb_build_object('message', 'again', 'type', 'Broken', 'source', 'many'), r.last_event_at
        FROM scoop.run r WHERE r.state = 'stuck'";
    execute(again.into()).await;
    let last: Uuid = sqlx::query_scalar("SELECT md5('1000 run1000')::uuid").fetch_one(&pool).await.unwrap();
    let blocked = (RepairStatus::BlockedByDescendant, vec![RunId::from(last)]);
    assert_eq!(statuses().await, vec![blocked; 50]);
    let page = store.failed_compensations(Page { after: None, limit: 50 }).await.unwrap();
    assert!(page.iter().all(|failed| failed.failure.message == "again"), "{page:?}");
    let mut blocks = vec![];
    for rows in [5, 50] {
        blocks.push(blocks_of(&pool, "rollback_failure_page", &format!("NULL, NULL, {rows}, 10")).await);
    }
    assert!(blocks[1] < 2 * blocks[0], "{blocks:?} blocks where an operator has to decide below each run");
    done(pool).await;
}

/// The status looks for a run below that awaits an operator, and for its failure; a decision waits for those above that have not
/// recorded a failure.
#[tokio::test]
async fn status_and_decisions_during_a_repair_cost_in_proportion_to_its_runs() {
    let pool = database("repaired_chain").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    execute("VACUUM ANALYZE".into()).await;
    for runs in [500, 1_000] {
        execute(REPAIRED_CHAIN.replace("{of}", &runs.to_string())).await;
    }
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE".into()).await;
        }
        let mut costs = vec![];
        for runs in [500, 1_000] {
            let root = format!("md5('{runs} run0')::uuid");
            let status = format!("{root}, md5('{runs} message1')::uuid");
            let decision = format!("{root}, ARRAY[md5('{runs} run{}')::uuid], 11", runs - 1);
            let status = carried_out(&pool, "message_status", &status).await;
            let decision = carried_out(&pool, "rollback_failure_waits", &decision).await;
            assert_eq!(decision["Actual Rows"].as_f64(), Some(0.0), "none above has to record a failure");
            costs.push([blocks_read(&status), blocks_read(&decision)]);
        }
        let [[status, few], [status_of_many, many]] = costs[..] else { panic!("{costs:?}") };
        assert!(status < 500 && status_of_many < 1_000, "{costs:?} blocks, analyzed: {looked_at}");
        // The lineage of each run is as long as its hierarchy is deep.
        assert!(many < 3 * few, "{costs:?} blocks, analyzed: {looked_at}");
    }
    // The repair fails again.
    execute(FAILED_AGAIN.into()).await;
    let mut costs = vec![];
    for runs in [500, 1_000] {
        let first = format!("md5('{runs} run0')::uuid, md5('{runs} message1')::uuid");
        costs.push(blocks_of(&pool, "message_status", &first).await);
    }
    assert!(costs[1] < 3 * costs[0], "{costs:?} blocks to find the failure below");
    done(pool).await;
}

/// The lowest run of a chain fails again: all above await an operator.
#[tokio::test]
async fn repair_that_fails_again_costs_in_proportion_to_the_runs_above() {
    let pool = database("failed_again").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let mut rows = vec![];
    for runs in [250, 1_000] {
        execute(REPAIRED_CHAIN.replace("{of}", &runs.to_string())).await;
        execute("VACUUM ANALYZE".into()).await;
        let values = format!(
            "md5('{runs} run0')::uuid, md5('{runs} run{runs}')::uuid, 1, 'step', NULL, '{{}}', 'a test', 'w', 'a test'"
        );
        rows.push(rows_handled(&carried_out(&pool, "run_mark_awaiting_operator", &values).await));
        let marked =
            "SELECT count(*) FROM scoop.run WHERE root = md5($1 || ' run0')::uuid AND awaits_operator";
        let marked: i64 = sqlx::query_scalar(marked).bind(runs.to_string()).fetch_one(&pool).await.unwrap();
        assert_eq!(marked, runs);
    }
    assert!(rows[1] < 6.0 * rows[0], "{rows:?} rows of 250 and 1,000 runs");
    done(pool).await;
}

/// Failed rollbacks of five handlers, each in a hierarchy of its own, and all of them settled.
const SETTLED_FAILURES: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5('settled' || n)::uuid, 'settled', '{}' FROM generate_series({from}, {to}) n;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at, exception)
    SELECT md5('settled' || n)::uuid, type::scoop.message_event_type, 'settled' || n % 5, 'step',
           ARRAY[md5('root' || n)::uuid, md5('run' || n)::uuid], now() + at * interval '1 second', '{}'
    FROM generate_series({from}, {to}) n, (VALUES ('ROLLBACK_FAILED', 1)) events (type, at);
    INSERT INTO scoop.rollback_failure
    SELECT f.* FROM scoop.recorded_rollback_failure f WHERE f.handler LIKE 'settled%';
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at)
    SELECT md5('settled' || n)::uuid, 'ROLLED_BACK', 'settled' || n % 5, 'step',
           ARRAY[md5('root' || n)::uuid, md5('run' || n)::uuid], now() + interval '2 seconds'
    FROM generate_series({from}, {to}) n;
    DELETE FROM scoop.rollback_failure f WHERE f.handler LIKE 'settled%'";

/// Two messages with `{of}` handlers each, in a hierarchy with as many other runs. All runs of the first have ended, those of the second
/// await an operator.
const HANDLED_BY_MANY: &str = "
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, exception)
    SELECT md5('{of} ' || message)::uuid, type::scoop.message_event_type, 'many' || n,
           ARRAY[md5('{of}')::uuid, md5('{of} ' || message || n)::uuid],
           CASE WHEN type LIKE 'ROLL%' THEN '{}'::jsonb END
    FROM generate_series(1, {of}) n
    CROSS JOIN (VALUES ('ended', 'SEEN'), ('held', 'SEEN'), ('held', 'ROLLING_BACK'), ('held', 'ROLLBACK_FAILED'))
        events (message, type);
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, awaits_operator, rollback_failed_before, last_event_at)
    SELECT md5('{of}')::uuid, run, ARRAY[md5('{of}')::uuid, run], md5('{of} ' || message)::uuid, 'many', 'many' || n,
           state::scoop.run_state, state = 'stuck', state = 'stuck', now()
    FROM generate_series(1, {of}) n
    CROSS JOIN (VALUES ('held', 'stuck'), ('other', 'ready')) kinds (message, state)
    CROSS JOIN LATERAL (SELECT md5('{of} ' || message || n)::uuid AS run) ids";

#[tokio::test]
async fn check_of_a_rollback_costs_in_proportion_to_the_runs_of_the_message_and_of_the_hierarchy() {
    let pool = database("handled_by_many").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    execute("VACUUM ANALYZE".into()).await;
    for of in [500, 2_000] {
        execute(HANDLED_BY_MANY.replace("{of}", &of.to_string())).await;
    }
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE".into()).await;
        }
        for message in ["ended", "held"] {
            let mut costs = vec![];
            for of in [500, 2_000] {
                let values = format!("md5('{of}')::uuid, md5('{of} {message}')::uuid");
                let plan = carried_out(&pool, "rollback_check", &values).await;
                costs.push((blocks_read(&plan), rows_handled(&plan)));
            }
            let [(blocks, rows), (more_blocks, more_rows)] = *costs else { panic!() };
            let of = format!("{costs:?} blocks and rows of {message}, analyzed: {looked_at}");
            assert!(more_blocks < blocks * 5 && more_rows < rows * 5.0, "{of}");
        }
    }
    done(pool).await;
}

/// Those of a hierarchy with many failed rollbacks are listed, too.
#[tokio::test]
async fn settled_failures_cost_nothing_in_counts_and_pages_of_failed_rollbacks() {
    let pool = database("settled_failures").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    execute("ALTER TABLE scoop.rollback_failure SET (autovacuum_enabled = false)".into()).await;
    let page = "NULL, NULL, 50, 10";
    let mut blocks = vec![];
    for (from, to, children) in [(1, 300, 400), (301, 20_000, 4_000)] {
        execute(SETTLED_FAILURES.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())).await;
        execute(FAILED_CHILDREN.replace("{of}", &children.to_string())).await;
        execute("VACUUM ANALYZE".into()).await;
        let nth =
            "SELECT failed_at::text FROM scoop.rollback_failure ORDER BY failed_at, run OFFSET 200 LIMIT 1";
        let nth: String = sqlx::query_scalar(nth).fetch_one(&pool).await.unwrap();
        let older = format!("'{nth}', NULL, 50, 10");
        let mut of_each = vec![];
        for (statement, values) in [
            ("rollback_failure_count", "100, NULL"),
            ("rollback_failure_page", page),
            ("rollback_failure_page", &*older),
        ] {
            let plan = carried_out(&pool, statement, values).await;
            let expected = if statement == "rollback_failure_count" { 1.0 } else { 50.0 };
            assert_eq!(plan["Actual Rows"].as_f64(), Some(expected), "{statement}");
            of_each.push(blocks_read(&plan));
        }
        blocks.push(of_each);
    }
    for (few, many) in blocks[0].iter().zip(&blocks[1]) {
        assert!(*many < 2 * few, "{blocks:?} blocks among few and many");
    }
    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    let counts = store.failed_rollback_counts(CountLimits::default()).await.unwrap();
    let counts: Vec<_> = counts.counts.iter().map(|it| (&*it.handler, it.count)).collect();
    assert_eq!(counts, [("many", 4_402)]);
    done(pool).await;
}

/// The number of rows that the nodes of a plan returned, or read and dropped.
fn rows_handled(plan: &serde_json::Value) -> f64 {
    let number = |key: &str| plan[key].as_f64().unwrap_or(0.0);
    let rows =
        number("Actual Rows") + number("Rows Removed by Filter") + number("Rows Removed by Join Filter");
    let below: f64 = plan["Plans"].as_array().into_iter().flatten().map(rows_handled).sum();
    rows * number("Actual Loops") + below
}
