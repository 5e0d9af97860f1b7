//! Plans of statements about failed rollbacks.

use super::*;

/// A failed run, and `{of}` failed children: every second one was launched during its rollback, and all others before that.
const FAILED_CHILDREN: &str = "
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at)
    SELECT md5('{of} message' || n)::uuid, 'EMITTED', 'many', 'step', ARRAY[md5('{of}')::uuid, md5('{of} run')::uuid],
           now() + CASE WHEN n % 2 = 0 THEN interval '5 s' ELSE '3 s' END
    FROM generate_series(1, {of}) n;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, created_at)
    SELECT md5('{of} message0')::uuid, 'ROLLING_BACK', 'many', ARRAY[md5('{of}')::uuid, md5('{of} run')::uuid],
           now() + interval '4 s';
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, state, step, suspended, rolling_back, failure,
         rollback_failure, ready_at, epoch, last_event_at)
    SELECT md5('{of}')::uuid, id, CASE WHEN n > 0 THEN md5('{of} run')::uuid END,
           array_remove(ARRAY[md5('{of}')::uuid, CASE WHEN n > 0 THEN md5('{of} run')::uuid END, id], NULL),
           md5('{of} message' || n)::uuid, 'many', 'many', 'failed', 'step', ROW(NULL, NULL, NULL, CASE n WHEN 0 THEN 0 END, NULL)::scoop.suspended, true, '{}', '{}',
           now() + (9 + (n = 0)::int) * interval '1 s', 1, now()
    FROM generate_series(0, {of}) n
    CROSS JOIN LATERAL (SELECT md5('{of} run' || CASE n WHEN 0 THEN '' ELSE n::text END)::uuid AS id) ids";

/// A chain of `{of}` failed runs, each of which failed because of the next one.
const FAILED_CHAIN: &str = "
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
    SELECT md5('{of} message1')::uuid, 'SEEN', 'many', ARRAY[md5('{of} run0')::uuid, md5('{of} run1')::uuid];
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, state, step, suspended, rolling_back, failure,
         rollback_failure, ready_at, epoch, last_event_at)
    SELECT lineage[1], lineage[n + 1], CASE WHEN n > 1 THEN lineage[n] END, lineage, md5('{of} message' || n)::uuid, 'many', 'many',
           'failed', 'step', ROW(NULL, NULL, NULL, CASE WHEN n < {of} THEN 0 END, NULL)::scoop.suspended, true, '{}', '{}',
           now() + ({of} - n) * interval '1 ms', 1, now()
    FROM generate_series(1, {of}) n
    CROSS JOIN LATERAL (SELECT ARRAY(
        SELECT md5('{of} run' || above)::uuid FROM generate_series(0, n) above ORDER BY above) AS lineage) ids";

async fn empty(name: &str) -> PgPool {
    let pool = database(name).await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    execute(&pool, "VACUUM ANALYZE").await;
    pool
}

async fn execute(pool: &PgPool, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await.map(drop).unwrap();
}

#[tokio::test]
async fn decision_costs_in_proportion_to_the_failed_runs_below() {
    let pool = empty("failed_children").await;
    for children in [1_000, 4_000] {
        execute(&pool, &FAILED_CHILDREN.replace("{of}", &children.to_string())).await;
    }
    for looked_at in [false, true] {
        if looked_at {
            execute(&pool, "VACUUM ANALYZE").await;
        }
        let mut costs = vec![];
        for children in [1_000, 4_000] {
            let (root, run) = (format!("md5('{children}')::uuid"), format!("md5('{children} run')::uuid"));
            let read = format!("{root}, ARRAY[{root}, {run}], {run}, 'operator'");
            let plan = carried_out(&pool, "run_read_repair", &read).await;
            assert_eq!(plan["Actual Rows"].as_f64(), Some(f64::from(children + 1)));
            costs.push((blocks_read(&plan), rows_handled(&plan)));
            // An explanation reads those that it names, and no more than some.
            let plan = carried_out(&pool, "run_failed_below", &format!("{root}, {run}, 11, 500")).await;
            assert_eq!(plan["Actual Rows"].as_f64(), Some(11.0));
            let blocks = blocks_read(&plan);
            assert!(blocks < 6_000, "{blocks} blocks of {children} in {plan:#}");
        }
        let [(blocks, rows), (more_blocks, more_rows)] = *costs else { panic!() };
        assert!(more_blocks < blocks * 5, "{costs:?} blocks and rows, analyzed: {looked_at}");
        assert!(more_rows < rows * 5.0, "{costs:?} blocks and rows, analyzed: {looked_at}");
    }
    let compensations = format!(
        "SELECT count(*) FROM ({}) r WHERE r.compensates",
        text_of("run_read_repair")
            .replace("$1", "md5('1000')::uuid")
            .replace("$2", "ARRAY[md5('1000 run')::uuid]")
            .replace("$3", "md5('1000 run')::uuid")
            .replace("$4", "''")
    );
    let compensations: i64 = sqlx::query_scalar(AssertSqlSafe(compensations)).fetch_one(&pool).await.unwrap();
    assert_eq!(compensations, 500, "those that were launched during the rollback");
    done(pool).await;
}

#[tokio::test]
async fn decision_costs_in_proportion_to_the_runs_above() {
    let pool = empty("failed_chain").await;
    let mut costs = vec![];
    for runs in [250, 1_000] {
        execute(&pool, &FAILED_CHAIN.replace("{of}", &runs.to_string())).await;
        execute(&pool, "VACUUM ANALYZE").await;
        let (root, last) = (format!("md5('{runs} run0')::uuid"), format!("md5('{runs} run{runs}')::uuid"));
        let text = async |what: String| {
            let text = format!("SELECT ({what})::text FROM scoop.run r WHERE r.root = {root}");
            sqlx::query_scalar::<_, String>(AssertSqlSafe(text)).fetch_one(&pool).await.unwrap()
        };
        let lineage = format!("'{}'", text(format!("max(r.lineage) FILTER (WHERE r.id = {last})")).await);
        let lock = carried_out(&pool, "run_lock_lineage", &format!("{root}, {lineage}")).await;
        let read = format!("{root}, {lineage}, {last}, 'operator'");
        let read = carried_out(&pool, "run_read_repair", &read).await;
        assert_eq!(read["Actual Rows"].as_f64(), Some(f64::from(runs)));
        let repaired = text(format!(
            "jsonb_agg(jsonb_build_object('id', r.id, 'state', CASE r.id WHEN {last} THEN 'ready' ELSE 'waiting' END,
                                          'rollback_requested', true, 'deadlines', '[]'::jsonb))"
        ));
        let repaired = format!("'{}'", repaired.await);
        let write = carried_out(&pool, "run_repair", &format!("{root}, {repaired}, now(), NULL")).await;
        costs.push([&lock, &read, &write].map(rows_handled));
        let waiting =
            "SELECT count(*) FROM scoop.run WHERE root = md5($1 || ' run0')::uuid AND state = 'waiting'";
        let waiting: i64 = sqlx::query_scalar(waiting).bind(runs.to_string()).fetch_one(&pool).await.unwrap();
        assert_eq!(waiting, i64::from(runs) - 1);
    }
    for (few, many) in costs[0].iter().zip(&costs[1]) {
        assert!(*many < 6.0 * few, "{costs:?} rows of 250 and 1,000 runs");
    }
    done(pool).await;
}

#[tokio::test]
async fn page_of_failed_runs_and_status_read_a_part_of_a_deep_hierarchy() {
    let pool = empty("failed_page").await;
    for runs in [250, 1_000] {
        execute(&pool, &FAILED_CHAIN.replace("{of}", &runs.to_string())).await;
    }
    for looked_at in [false, true] {
        if looked_at {
            execute(&pool, "VACUUM ANALYZE").await;
        }
        let mut blocks = vec![];
        for rows in [5, 50] {
            let plan = carried_out(&pool, "failed_runs", &format!("NULL, NULL, {rows}, 10, 100")).await;
            assert_eq!(plan["Actual Rows"].as_f64(), Some(f64::from(rows)));
            blocks.push(blocks_read(&plan));
        }
        assert!(blocks[1] < 15 * blocks[0] && blocks[1] < 60_000, "{blocks:?} blocks, analyzed: {looked_at}");
        let status = "md5('1000 run0')::uuid, md5('1000 message1')::uuid";
        let blocks = blocks_of(&pool, "message_status", status).await;
        assert!(blocks < 2_000, "{blocks} blocks of a status, analyzed: {looked_at}");
    }
    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    let page = store.failed_rollbacks(Page { after: None, limit: 50 }).await.unwrap();
    let hundredth: Uuid =
        sqlx::query_scalar("SELECT md5('1000 run101')::uuid").fetch_one(&pool).await.unwrap();
    assert_eq!(page[0].failed_below.first(), Some(&RunId::from(hundredth)), "the deepest one that was read");
    done(pool).await;
}

/// Two messages with `{of}` handlers each, in a hierarchy with as many other runs. All runs of the first have ended, those of the second
/// are failed.
const HANDLED_BY_MANY: &str = "
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, exception)
    SELECT md5('{of} ' || message)::uuid, type::scoop.message_event_type, 'many' || n,
           ARRAY[md5('{of}')::uuid, md5('{of} ' || message || n)::uuid],
           CASE WHEN type LIKE 'ROLL%' THEN '{}'::jsonb END
    FROM generate_series(1, {of}) n
    CROSS JOIN (VALUES ('ended', 'SEEN'), ('held', 'SEEN'), ('held', 'ROLLING_BACK'), ('held', 'ROLLBACK_FAILED'))
        events (message, type);
    INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT md5('{of}')::uuid, run, ARRAY[md5('{of}')::uuid, run], md5('{of} ended')::uuid, 'many', 'many' || n, 'committed', now()
    FROM generate_series(1, {of}) n
    CROSS JOIN LATERAL (SELECT md5('{of} ended' || n)::uuid AS run) ids;
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, rolling_back, failure, rollback_failure, step, last_event_at)
    SELECT md5('{of}')::uuid, run, ARRAY[md5('{of}')::uuid, run], md5('{of} ' || message)::uuid, 'many', 'many' || n,
           state::scoop.run_state, true, '{}', '{}', 'step', now()
    FROM generate_series(1, {of}) n
    CROSS JOIN (VALUES ('held', 'failed'), ('other', 'ready')) kinds (message, state)
    CROSS JOIN LATERAL (SELECT md5('{of} ' || message || n)::uuid AS run) ids";

#[tokio::test]
async fn check_of_a_rollback_costs_in_proportion_to_the_runs_of_the_message_and_of_the_hierarchy() {
    let pool = empty("handled_by_many").await;
    for of in [500, 2_000] {
        execute(&pool, &HANDLED_BY_MANY.replace("{of}", &of.to_string())).await;
    }
    for looked_at in [false, true] {
        if looked_at {
            execute(&pool, "VACUUM ANALYZE").await;
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

/// The number of rows that the nodes of a plan returned, or read and dropped.
fn rows_handled(plan: &serde_json::Value) -> f64 {
    let number = |key: &str| plan[key].as_f64().unwrap_or(0.0);
    let rows =
        number("Actual Rows") + number("Rows Removed by Filter") + number("Rows Removed by Join Filter");
    let below: f64 = plan["Plans"].as_array().into_iter().flatten().map(rows_handled).sum();
    rows * number("Actual Loops") + below
}
