//! Plans of lists and counts.

use scoop_operate::{OperateExt as _, WaitKind};
use scoop_runtime::RunPhase;

use super::*;

/// As many finished runs as asked, and as many that sleep, of ten handlers; one finished one in a hundred is undone.
const LISTED: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5('{size}listed' || n)::uuid, 'listed', '{}' FROM generate_series(1, {size}) n;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, created_at)
    SELECT md5('{size}listed' || n)::uuid, type::scoop.message_event_type, 'listed' || n % 10,
           ARRAY[md5('{size}root' || n)::uuid, md5('{size}run' || n)::uuid], now() + n * interval '1 second'
    FROM generate_series(1, {size}) n
    CROSS JOIN LATERAL unnest(
        CASE WHEN n % 100 = 0 THEN '{SEEN,ROLLING_BACK,ROLLED_BACK}' ELSE '{SEEN,COMMITTED}' END::text[]) AS type;
    INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, ARRAY[root, id], md5('{size}listed' || n)::uuid, 'listed', 'listed' || n % 10,
           CASE WHEN n % 100 = 0 THEN 'rolled_back' ELSE 'committed' END::scoop.run_outcome, now() + n * interval '1 second'
    FROM generate_series(1, {size}) n
    CROSS JOIN LATERAL (SELECT md5('{size}root' || n)::uuid AS root, md5('{size}run' || n)::uuid AS id) ids;
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, state, epoch, ready_at, last_event_at)
    SELECT md5('{size}asleep' || n)::uuid, id, ARRAY[md5('{size}asleep' || n)::uuid, id],
           md5('{size}message' || n)::uuid, 'listed', 'listed' || n % 10, 'ready', 1, now() + interval '1 day', now()
    FROM generate_series(1, {size}) n
    CROSS JOIN LATERAL (SELECT md5('{size}of' || n)::uuid AS id) ids;";

#[tokio::test]
async fn page_of_runs_costs_the_same_among_many() {
    let pool = database("pages").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let all = "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 51, 102";
    let of_one = "'listed3', NULL, NULL, '{sleeping}', NULL, NULL, NULL, NULL, NULL, NULL, 51, 200";
    let ended = "NULL, NULL, '{committed,rolled_back}', NULL, NULL, NULL, NULL, NULL, NULL, 51, 102";
    let undone = "'listed0', NULL, '{rolled_back}', NULL, NULL, 'none', NULL, NULL, NULL, 51, 200";
    let mut blocks = vec![];
    for size in [3_000, 30_000] {
        execute(LISTED.replace("{size}", &size.to_string())).await;
        execute("VACUUM ANALYZE".into()).await;
        for (statement, values) in [
            ("run_page_unfinished", all),
            ("run_page_unfinished", of_one),
            ("run_page_finished", ended),
            ("run_page_finished", undone),
        ] {
            blocks.push(blocks_of(&pool, statement, values).await);
        }
    }
    let (few, many) = blocks.split_at(4);
    for (nth, (few, many)) in few.iter().zip(many).enumerate() {
        assert!(*many < 5_000, "list {nth}: {many} blocks");
        assert!(nth == 3 || *many < 2 * few, "list {nth}: {many} blocks among many, {few} among few");
    }
    done(pool).await;
}

/// Ends of runs of so many sagas, in turn, at so many times.
const ENDS: &str = "
    INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, ARRAY[root, id], gen_random_uuid(), 'ended', 'saga' || n % {sagas}, 'committed',
           '2020-01-01Z'::timestamptz - n % {times} * interval '1 second'
    FROM generate_series(1, {ends}) n
    -- of each row, so that the ids differ
    CROSS JOIN LATERAL (SELECT gen_random_uuid() AS root, gen_random_uuid() AS id WHERE n > 0) ids";

fn ends(sagas: u32, times: u32, ends: u32) -> AssertSqlSafe<String> {
    let numbers = [("{sagas}", sagas), ("{times}", times), ("{ends}", ends)];
    AssertSqlSafe(
        numbers.iter().fold(ENDS.to_owned(), |sql, (name, number)| sql.replace(name, &number.to_string())),
    )
}

#[tokio::test]
async fn page_of_ended_runs_looks_up_one_end_of_each_saga() {
    const SAGAS: u32 = 1_000;
    let pool = database("ends_of_many_sagas").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    sqlx::raw_sql(ends(SAGAS, 100_000, 30 * SAGAS)).execute(&pool).await.unwrap();
    sqlx::raw_sql("VACUUM ANALYZE").execute(&pool).await.unwrap();
    for place in ["NULL, NULL", "'2020-01-01Z'::timestamptz - interval '4 hours', gen_random_uuid()"] {
        let values = format!("NULL, NULL, '{{committed}}', NULL, NULL, NULL, NULL, {place}, 51, 102");
        let plan = carried_out(&pool, "run_page_finished", &values).await;
        assert_eq!(plan["Actual Rows"].as_f64(), Some(51.0), "from {place}");
        let blocks = blocks_read(&plan);
        assert!(blocks < 10 * i64::from(SAGAS), "from {place}: {blocks} blocks");
    }
    done(pool).await;
}

/// Many of them end at the same time.
#[tokio::test]
async fn pages_of_ended_runs_of_many_sagas_have_each_run_once_and_in_order() {
    let pool = database("order_of_ends").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    sqlx::raw_sql(ends(40, 7, 600)).execute(&pool).await.unwrap();
    let runs = scoop_runtime::Scoop::client(pool.clone()).operate().runs();
    let times = "SELECT DISTINCT ended_at FROM scoop.ended_run ORDER BY 1";
    let times: Vec<OffsetDateTime> = sqlx::query_scalar(times).fetch_all(&pool).await.unwrap();
    for (since, until) in
        [(None, None), (Some(times[2]), None), (None, Some(times[4])), (Some(times[1]), Some(times[5]))]
    {
        let in_order = "
            SELECT id FROM scoop.ended_run
            WHERE ended_at >= coalesce($1, '-infinity') AND ended_at < coalesce($2, 'infinity')
            ORDER BY ended_at DESC, id DESC";
        let in_order = sqlx::query_scalar(in_order).bind(since).bind(until);
        let in_order: Vec<Uuid> = in_order.fetch_all(&pool).await.unwrap();
        let mut list = runs.list().page(7);
        list = since.into_iter().fold(list, |list, since| list.since(since.into()));
        list = until.into_iter().fold(list, |list, until| list.until(until.into()));
        let (mut listed, mut place) = (vec![], None);
        loop {
            let page = list.clone().after(place).await.unwrap();
            listed.extend(page.runs.iter().map(|run| run.run.uuid()));
            place = page.next;
            if place.is_none() {
                break;
            }
        }
        assert_eq!(listed, in_order, "since {since:?}, until {until:?}");
    }
    done(pool).await;
}

/// So many subscriptions, each with a limit; one saga of a hundred has a former name. And as many retired ones.
const SUBSCRIPTIONS: &str = "
    INSERT INTO scoop.handler (topic, handler)
    SELECT 'topic' || n / 10, 'saga' || n FROM generate_series({from}, {to}) n;
    INSERT INTO scoop.handler (topic, handler, retired_at)
    SELECT 'old' || n / 10, 'saga' || n, now() FROM generate_series({from}, {to}) n;
    INSERT INTO scoop.run_limit (saga, handlers, queue)
    SELECT 'saga' || n, ARRAY['saga' || n] || CASE WHEN n % 100 = 0 THEN ARRAY['former' || n] END, 5
    FROM generate_series({from}, {to}) n";

#[tokio::test]
async fn page_of_subscriptions_costs_the_same_among_many() {
    let pool = database("subscriptions").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let pages = [
        ("handler_list", "'', '', '', 201, NULL, NULL", 201.0),
        ("handler_list", "'topic5', '', 'saga', 201, NULL, NULL", 201.0),
        ("handler_list_retired", "201", 201.0),
        ("queue_list", "'{saga100,saga101,none}'", 2.0),
    ];
    let mut blocks = vec![];
    for (from, to) in [(1, 1_000), (1_001, 20_000)] {
        execute(SUBSCRIPTIONS.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())).await;
        execute("VACUUM ANALYZE".into()).await;
        for (statement, values, rows) in pages {
            let plan = carried_out(&pool, statement, values).await;
            assert_eq!(plan["Actual Rows"].as_f64(), Some(rows), "{statement} ({values})");
            blocks.push(blocks_read(&plan));
        }
    }
    let (few, many) = blocks.split_at(pages.len());
    for ((few, many), page) in few.iter().zip(many).zip(pages) {
        assert!(*many < 2 * few, "{page:?}: {many} blocks among many, {few} among few");
    }
    done(pool).await;
}

#[tokio::test]
async fn explanation_of_a_ready_run_reads_no_queues_of_others() {
    let pool = database("explained_among_queues").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    execute(QUEUES.replace("{name}", "forged").replace("{count}", "5000")).await;
    execute("VACUUM ANALYZE scoop.run".to_owned()).await;
    let run = Uuid::from_u128(0x3d5c_8a2f);
    execute(format!(
        "INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
         VALUES ('{run}', '{run}', ARRAY['{run}', '{run}']::uuid[], '{run}', 'own', 'own', now())"
    ))
    .await;
    let blocks = blocks_of(&pool, "run_explain", &format!("'{run}', '{run}', 1, 1")).await;
    assert!(blocks < 500, "{blocks} blocks");
    let blocks = blocks_of(&pool, "handler_list_abandoned", "10").await;
    assert!(blocks < 500, "{blocks} blocks for the first sagas");
    done(pool).await;
}

/// A page looks up the newest runs of each saga in each state: see [`QUEUES`].
#[tokio::test]
async fn page_of_unfinished_runs_costs_one_lookup_for_each_saga() {
    const SAGAS: i64 = 5_000;
    let pool = database("unfinished_of_many_sagas").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(QUEUES.replace("{name}", "forged").replace("{count}", &SAGAS.to_string())))
        .execute(&pool)
        .await
        .unwrap();
    sqlx::raw_sql("VACUUM ANALYZE scoop.run").execute(&pool).await.unwrap();
    for (statement, values, lookup) in [
        ("run_page_unfinished", "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 51, 102", 6),
        (
            "run_page_unfinished",
            "NULL, NULL, '{ready}', NULL, NULL, NULL, NULL, '{slot}', NULL, NULL, 51, 500",
            6,
        ),
        ("stuck_runs", "NULL, NULL, 21", 8),
    ] {
        let blocks = blocks_of(&pool, statement, values).await;
        assert!(blocks < SAGAS * lookup + 4_000, "{statement} ({values}): {blocks} blocks");
    }
    done(pool).await;
}

/// Runs of one saga that wait for their children, and a failed one with the smallest id.
const WAITING_RUNS: &str = "
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, rolling_back, failure, rollback_failure, step, epoch, last_event_at)
    SELECT root, root, ARRAY[root], root, 'order', 'ship', CASE n WHEN 0 THEN 'failed' ELSE 'waiting' END::scoop.run_state, true,
           '{}', '{}', 'step', 1, now()
    FROM (
        SELECT n, CASE n WHEN 0 THEN '00000000-0000-0000-0000-000000000001' ELSE md5('root' || n)::uuid END AS root
        FROM generate_series(0, 5000) n
    ) runs";

#[tokio::test]
async fn failed_run_is_found_and_counted_among_many_that_wait() {
    let pool = database("waiting_runs").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    sqlx::raw_sql(WAITING_RUNS).execute(&pool).await.unwrap();
    sqlx::raw_sql("VACUUM ANALYZE scoop.run").execute(&pool).await.unwrap();
    let runs = scoop_runtime::Scoop::client(pool.clone()).operate().runs();
    for list in [runs.list().state(RunPhase::RollbackFailed), runs.list().waiting_for(WaitKind::Operator)] {
        let found = list.await.unwrap();
        assert_eq!((found.runs.len(), found.next), (1, None));
    }
    let counted = runs.count().await.unwrap();
    assert_eq!(counted.unfinished_in(RunPhase::Waiting), 5_000);
    assert_eq!(counted.unfinished_in(RunPhase::RollbackFailed), 1);
    let failed = "NULL, NULL, '{failed}', '{rollback failed}', NULL, NULL, NULL, NULL, NULL, NULL, 51, 500";
    let blocks = blocks_of(&pool, "run_page_unfinished", failed).await;
    assert!(blocks < 1_000, "{blocks} blocks: it reads 500 rows of runs");
    done(pool).await;
}

/// Sleeping runs of one saga, and three with greater ids that are due.
const SLEEPING_RUNS: &str = "
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, step, ready_at, epoch, suspensions, last_event_at, began_at)
    SELECT root, root, ARRAY[root], gen_random_uuid(), 'order', 'ship', 'pack',
           now() + CASE WHEN n > 30000 THEN interval '-1 min' ELSE n * interval '1 min' END, 1, 1, now(), now()
    FROM (SELECT n, md5('root' || n)::uuid AS root FROM generate_series(1, 30003) n) runs";

#[tokio::test]
async fn counts_of_runs_end_at_their_limit_without_hiding_due_ones() {
    const BLOCKS_MAX: i64 = 400;
    let pool = database("counted_runs").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute("ALTER TABLE scoop.run SET (autovacuum_enabled = false)").await;
    execute(SLEEPING_RUNS).await;
    execute("VACUUM ANALYZE scoop.run").await;
    for (statement, values) in [
        ("run_count_unfinished", "100, NULL"),
        ("run_count_left", "'handler', 'ship', 100"),
        ("run_positions", "'{ship}', 100"),
        ("stuck_runs", "NULL, NULL, 50"),
    ] {
        let blocks = blocks_of(&pool, statement, values).await;
        assert!(blocks < BLOCKS_MAX, "{statement} read {blocks} blocks");
    }
    let runs = scoop_runtime::Scoop::client(pool.clone()).operate().runs();
    for (count, sleeping) in [(runs.count(), (10_000, true)), (runs.count().exact(), (30_000, false))] {
        let counted = count.await.unwrap();
        let counts: Vec<_> =
            counted.unfinished.iter().map(|it| (it.phase, (it.count, it.is_capped))).collect();
        assert_eq!(counts, [(RunPhase::Ready, (3, false)), (RunPhase::Sleeping, sleeping)]);
    }
    done(pool).await;
}
