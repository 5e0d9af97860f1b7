//! Plans of trees, with their interventions and requests.

use super::*;

/// A run with so many children, all of which have failed.
const CROWD: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5({size} || 'message' || n)::uuid, 'crowd', '{}' FROM generate_series(0, {size}) n;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at)
    SELECT md5({size} || 'message' || n)::uuid, type::scoop.message_event_type, events.handler, 'step',
           array_remove(lineage, NULL), '2020-01-01Z'::timestamptz + n * interval '1 minute' + after
    FROM generate_series(0, {size}) n
    CROSS JOIN LATERAL (SELECT md5('root{size}')::uuid AS root, md5('run{size}')::uuid AS run,
        CASE WHEN n > 0 THEN md5({size} || 'child' || n)::uuid END AS child, CASE WHEN n > 0 THEN 'crowd' END AS emitter,
        CASE WHEN n > 0 THEN 'member' ELSE 'crowd' END AS handler) ids
    CROSS JOIN LATERAL (VALUES
        ('EMITTED', emitter, ARRAY[root, CASE WHEN n > 0 THEN run END], interval '0'),
        ('SEEN', handler, ARRAY[root, run, child], interval '1 second'),
        ('ROLLED_BACK', handler, ARRAY[root, run, child], interval '2 seconds')
    ) events (type, handler, lineage, after)";

/// Also when the planner takes the table for a small one.
#[tokio::test]
async fn tree_reads_blocks_in_proportion_to_the_number_of_runs() {
    let pool = database("tree_of_crowd").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    for size in [50_i32, 4_000] {
        execute(CROWD.replace("{size}", &size.to_string())).await;
        let whole = format!("md5('{size}message0')::uuid, {WHOLE_TREE}");
        let plan = carried_out(&pool, "run_tree", &whole).await;
        assert_eq!(plan["Actual Rows"].as_f64(), Some(f64::from(size + 1)));
        let of_each = blocks_read(&plan) / i64::from(size);
        assert!(of_each < 60, "{of_each} blocks for each of {size} runs");
        execute("VACUUM ANALYZE".into()).await;
    }
    done(pool).await;
}

/// However many messages a run has launched, handled or not, a limited tree looks at a part of them.
#[tokio::test]
async fn limited_tree_looks_at_a_part_of_the_launched_messages() {
    const PART: &str = "100, NULL, 250, 10000, 100, 1100, 10100, 4194304";
    let pool = database("limited_tree_of_crowd").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    for (size, unhandled) in [(20_000, 0.0), (20_001, 101.0)] {
        execute(CROWD.replace("{size}", &size.to_string())).await;
        if unhandled > 0.0 {
            execute("DELETE FROM scoop.message_event WHERE coroutine_name = 'member'".into()).await;
        }
        execute("VACUUM ANALYZE".into()).await;
        let part = format!("md5('{size}message0')::uuid, NULL, {PART}");
        let plan = carried_out(&pool, "run_tree", &part).await;
        let runs = if unhandled > 0.0 { 1.0 } else { 101.0 };
        assert_eq!(plan["Actual Rows"].as_f64(), Some(runs + unhandled));
        // Of all messages it would read some 20 times as many.
        let blocks = blocks_read(&plan);
        assert!(blocks < 20_000, "{blocks} blocks, {unhandled} without a handler, in {plan:#}");
    }
    done(pool).await;
}

/// The rows of a run of many steps that launched nothing.
const LOOP: &str = "
    INSERT INTO scoop.message (id, topic, payload) VALUES (md5('message')::uuid, 'loops', '{}');
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage, created_at, exception)
    SELECT md5('message')::uuid, type::scoop.message_event_type, CASE type WHEN 'EMITTED' THEN NULL ELSE 'saga' END, step,
           array_remove(ARRAY[md5('root')::uuid, CASE type WHEN 'EMITTED' THEN NULL ELSE md5('run')::uuid END], NULL),
           '2020-01-01Z'::timestamptz + n * interval '1 second',
           CASE type WHEN 'ROLLING_BACK' THEN '{\"type\": \"T\", \"message\": \"m\", \"source\": \"s\"}'::jsonb END
    FROM generate_series(0, 30000) n
    CROSS JOIN LATERAL (VALUES (CASE n WHEN 0 THEN 'EMITTED' WHEN 1 THEN 'SEEN' WHEN 15000 THEN 'ROLLING_BACK'
                                WHEN 30000 THEN 'ROLLED_BACK' ELSE 'SUSPENDED' END,
        CASE WHEN n > 15000 THEN 'Rollback of turn[' || n || ',]' ELSE 'turn' END)) events (type, step);
    INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
    VALUES (md5('root')::uuid, md5('run')::uuid, ARRAY[md5('root')::uuid, md5('run')::uuid], md5('message')::uuid, 'loops', 'saga',
            'rolled_back', '2020-01-01Z'::timestamptz + interval '30000 s')";

#[tokio::test]
async fn events_of_a_long_run_are_read_from_its_ends() {
    let pool = database("tree_of_loop").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    sqlx::raw_sql(LOOP).execute(&pool).await.unwrap();
    let schema = Schema::new("scoop").unwrap();
    let store = PostgresStore::new(Sessions::new(&pool, 1, &ConnectionSettings::default()), &schema);
    let message: Uuid = sqlx::query_scalar("SELECT md5('message')::uuid").fetch_one(&pool).await.unwrap();
    let run: Uuid = sqlx::query_scalar("SELECT md5('run')::uuid").fetch_one(&pool).await.unwrap();
    for only in [None, Some(run)] {
        let extent = TreeBounds { runs: Some(101), run: only, events: Some(250), ..TreeBounds::default() };
        let read = store.tree(message, extent).await.unwrap();
        let [Ok(RunRow::Run(run))] = &read.rows[..] else { panic!("{read:?}") };
        assert_eq!((run.events.len(), run.events_left_out), (501, 10_000), "10,000 stands for more");
        assert!(run.events[500].kind == scoop_core::EventKind::RolledBack && run.events[499].is_undoing());
        assert!(matches!(&run.state, crate::RunState::RolledBack(failure) if failure.message == "m"));
        assert!(store.is_reachable(run.lineage.root_id(), message).await.unwrap());
    }
    done(pool).await;
}

/// A run with many interventions, at two times, in a hierarchy with many requests to cancel other runs.
const DECIDED: &str = "
    INSERT INTO scoop.message (id, topic, payload) VALUES (md5('message')::uuid, 'decided', '{}');
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage)
    SELECT md5('message')::uuid, type::scoop.message_event_type, 'saga', 'step', ARRAY[md5('root')::uuid, md5('run')::uuid]
    FROM (VALUES ('SEEN'), ('ROLLED_BACK')) events (type);
    INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
    VALUES (md5('root')::uuid, md5('run')::uuid, ARRAY[md5('root')::uuid, md5('run')::uuid], md5('message')::uuid, 'decided', 'saga',
            'rolled_back', now());
    INSERT INTO scoop.intervention (root, run, handler, message_id, kind, note, source, requested_at)
    SELECT md5('root')::uuid, md5('run')::uuid, 'saga', md5('message')::uuid, 'skip', n, 'a stranger',
           '2020-01-01Z'::timestamptz + (n - 1) / 50000 * interval '1 second'
    FROM generate_series(1, 100000) n;
    INSERT INTO scoop.message_event (message_id, type, cooperation_lineage, created_at)
    SELECT md5('message')::uuid, 'CANCELLATION_REQUESTED',
           array_remove(ARRAY[md5('root')::uuid, CASE WHEN n > 0 THEN md5('other' || n)::uuid END], NULL),
           '2020-01-01Z'::timestamptz + n * interval '1 second'
    FROM generate_series(0, 100000) n";

#[tokio::test]
async fn a_part_of_many_interventions_and_requests_is_read() {
    let pool = database("decided").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute(DECIDED).await;
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE").await;
        }
        for (statement, asked) in [
            ("intervention_of_runs", "md5('root')::uuid, ARRAY[md5('run')::uuid], NULL, 250, 10000"),
            ("request_list", "md5('root')::uuid, ARRAY[md5('root')::uuid, md5('run')::uuid]"),
            ("run_explain_ended", "md5('root')::uuid, md5('run')::uuid"),
        ] {
            let blocks = blocks_of(&pool, statement, asked).await;
            assert!(blocks < 1_000, "{statement}: {blocks} blocks, analyzed: {looked_at}");
        }
    }
    let schema = Schema::new("scoop").unwrap();
    let store = PostgresStore::new(Sessions::new(&pool, 1, &ConnectionSettings::default()), &schema);
    let id_of = async |name: &str| -> Uuid {
        sqlx::query_scalar("SELECT md5($1)::uuid").bind(name).fetch_one(&pool).await.unwrap()
    };
    let (root, run) = (id_of("root").await, id_of("run").await);
    let extent = TreeBounds { events: Some(250), ..TreeBounds::default() };
    let read = store.interventions_of(root, Some(&[root, run]), extent).await.unwrap();
    assert_eq!(read.len(), 500);
    assert_eq!(store.interventions_of(root, None, extent).await.unwrap(), read);
    assert!(read.iter().all(|(_, left_out)| *left_out == 10_000), "10,000 stands for more");
    let newest = read.last().unwrap().0.at.duration_since(read[0].0.at).unwrap();
    assert_eq!(newest.as_secs(), 1, "both ends are read");
    let all = store.interventions_of(root, Some(&[run]), TreeBounds::default()).await.unwrap();
    assert_eq!((all.len(), all[0].1), (100_000, 0));
    assert_eq!(store.interventions_of(root, None, TreeBounds::default()).await.unwrap(), all);
    assert_eq!(store.cancellations(root, Some(&[root, run])).await.unwrap().len(), 1);
    assert_eq!(store.cancellations(root, None).await.unwrap().len(), 100_001);
    done(pool).await;
}

/// Two hierarchies of many runs with failed rollbacks. The second one has a request to cancel a run, and interventions on two.
const RARELY_DECIDED: &str = "
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, step, cooperation_lineage)
    SELECT md5(hierarchy || 'message' || n)::uuid, type::scoop.message_event_type, 'saga', 'step',
           ARRAY[md5(hierarchy)::uuid, md5(hierarchy || 'run' || n)::uuid]
    FROM (VALUES ('quiet'), ('decided')) hierarchies (hierarchy), generate_series(1, 20000) n,
         (VALUES ('SEEN'), ('ROLLBACK_FAILED')) events (type);
    INSERT INTO scoop.message_event (message_id, type, cooperation_lineage)
    SELECT md5('decidedmessage1')::uuid, 'CANCELLATION_REQUESTED', ARRAY[md5('decided')::uuid, md5('decidedrun1')::uuid];
    INSERT INTO scoop.intervention (root, run, handler, message_id, kind, source, requested_at)
    SELECT md5('decided')::uuid, md5('decidedrun' || n % 2)::uuid, 'saga', md5('decidedmessage')::uuid, 'skip', 'a stranger',
           '2020-01-01Z'::timestamptz + n * interval '1 second'
    FROM generate_series(1, 10) n";

#[tokio::test]
async fn few_interventions_and_requests_among_many_runs_cost_nothing_for_the_others() {
    let pool = database("rarely_decided").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute(RARELY_DECIDED).await;
    let runs: Vec<_> = (0..2_000).map(|n| Uuid::from_u128(n).to_string()).collect();
    let runs = format!("'{{{}}}'", runs.join(","));
    let cases = [
        ("intervention_of_runs", "md5('decided')::uuid, NULL, NULL, 250, 10000".to_owned()),
        ("intervention_of_runs", format!("md5('quiet')::uuid, {runs}, NULL, 250, 10000")),
        ("intervention_list", "md5('decided')::uuid".to_owned()),
        ("request_list", "md5('decided')::uuid, NULL".to_owned()),
        ("request_list", format!("md5('quiet')::uuid, {runs}")),
    ];
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE").await;
        }
        for (number, (statement, asked)) in cases.iter().enumerate() {
            let blocks = blocks_of(&pool, statement, asked).await;
            assert!(blocks < 100, "{statement}: {blocks} blocks in case {number}, analyzed: {looked_at}");
        }
    }
    let schema = Schema::new("scoop").unwrap();
    let store = PostgresStore::new(Sessions::new(&pool, 1, &ConnectionSettings::default()), &schema);
    let root: Uuid = sqlx::query_scalar("SELECT md5('decided')::uuid").fetch_one(&pool).await.unwrap();
    let extent = TreeBounds { events: Some(2), ..TreeBounds::default() };
    let ends = store.interventions_of(root, None, extent).await.unwrap();
    let numbers = ends.iter().map(|(done, left_out)| {
        (done.at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - 1_577_836_800, *left_out)
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3, 4, 7, 8, 9, 10].map(|number| (number, 1)));
    done(pool).await;
}
