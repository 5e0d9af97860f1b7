//! Plans of claims, and of the lookup of queues with ready runs.

use scoop_core::Priority;

use super::super::{claim, launching, queues};
use super::*;
use crate::store::QueueCursors;

/// Claimed runs are not read again, though their index entries are still there. `named` names the database. `known` are values with the progress of
/// the queue, with which the statement reads fewer blocks than `at_most`. `unknown` are values without it.
async fn reads_what_is_ready_and_not_what_was_taken(
    statement: &str,
    named: &str,
    (known, at_most): (&str, i64),
    unknown: &str,
) {
    let pool = database(&format!("dead_{named}")).await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    store.register_alone(&pool, Uuid::nil(), 1).await;
    execute("ALTER TABLE scoop.run SET (autovacuum_enabled = false)").await;
    // Not by an update: another session, such as one of autovacuum, may keep its dead entries from being removed.
    execute("ALTER TABLE scoop.run ALTER ready_at SET DEFAULT now() - interval '10 minutes'").await;
    execute(MANY).await;
    execute("VACUUM scoop.run").await;
    execute("DELETE FROM scoop.run WHERE handler = 'many' AND state = 'ready'").await;
    // In this order: a scan marks dead entries, so that the next one is faster.
    let from_the_last_on = blocks_of(&pool, statement, known).await;
    let from_the_first_on = blocks_of(&pool, statement, unknown).await;
    assert!(from_the_first_on > 100, "{from_the_first_on} blocks: the entries are not there any more");
    assert!(from_the_last_on < at_most, "{from_the_last_on} blocks");
    done(pool).await;
}

#[tokio::test]
async fn claim_skips_the_index_entries_of_claimed_runs() {
    let claim = |reached: &str| {
        format!(
            "'{}', '', '{{many}}', '{{many}}', 100, '{{}}', '{{}}', {reached}, '{{0}}', 0, NULL, \
             {reached}, {reached}, '{{}}', '{{}}', '{{false}}'",
            Uuid::nil()
        )
    };
    let (known, unknown) = (claim("ARRAY[now() - interval '9 minutes']"), claim("'{NULL}'"));
    reads_what_is_ready_and_not_what_was_taken("run_claim", "claim", (&known, 20), &unknown).await;
}

fn lookups(plan: &serde_json::Value, index: &str) -> i64 {
    let own = if plan["Index Name"] == index { plan["Actual Loops"].as_i64().unwrap() } else { 0 };
    let below = plan["Plans"].as_array().into_iter().flatten();
    own + below.map(|plan| lookups(plan, index)).sum::<i64>()
}

/// A ready run of another saga.
const PRIORITIZED: &str = "
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, ready_at, last_event_at, context)
    SELECT id, id, ARRAY[id, id], id, 'prioritized', 'prioritized', now() + interval '{ready_in}', now(),
           '{\"scoop.priority\": \"high\"}'
    FROM (SELECT gen_random_uuid() AS id) ids";

#[tokio::test]
async fn claim_reads_one_level_of_each_queue_unless_a_due_run_has_a_priority() {
    let pool = database("claimed_levels").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    store.register_alone(&pool, Uuid::nil(), 1).await;
    // The lookups in the queues, and whether the claim has looked for priorities.
    let looks = async |reached_high: &str| {
        let values = format!(
            "'{}', '', '{{t,t,t}}', '{{a,b,c}}', 100, '{{}}', '{{}}', '{{NULL,NULL,NULL}}', '{{0,0,0}}', 0, NULL, \
             {reached_high}, {reached_high}, '{{}}', '{{}}', '{{false,false,false}}'",
            Uuid::nil()
        );
        let plan = carried_out(&pool, "run_claim", &values).await;
        (lookups(&plan, "run_ready"), lookups(&plan, "run_rare"))
    };
    let unknown = "'{NULL,NULL,NULL}'";
    execute(MANY.to_owned()).await;
    assert_eq!(looks(unknown).await, (3, 1));
    execute(PRIORITIZED.replace("{ready_in}", "1 hour")).await;
    assert_eq!(looks(unknown).await, (3, 1), "it is not due");
    execute(PRIORITIZED.replace("{ready_in}", "0")).await;
    assert_eq!(looks(unknown).await, (9, 1));
    execute("DELETE FROM scoop.run WHERE topic = 'prioritized'".to_owned()).await;
    assert_eq!(looks(unknown).await, (3, 1), "it is gone");
    execute(PRIORITIZED.replace("{ready_in}", "-1 minute")).await;
    let position = |at: &str| format!("array_fill({at}, ARRAY[3])");
    assert_eq!(looks(&position("now() - interval '1 hour'")).await, (9, 1));
    assert_eq!(looks(&position("now()")).await, (3, 1), "it is of another program, before the positions");
    done(pool).await;
}

#[tokio::test]
async fn lookup_of_ready_queues_skips_the_index_entries_of_claimed_runs() {
    // The index is read up to the dead entries, and after them, too.
    let looks = |known: &str| {
        format!(
            "'{{many,many,many}}', '{{a,many,z}}', '{{0,0,0}}', {known}, '{{NULL,NULL,NULL}}', '{{NULL,NULL,NULL}}', \
             '{{}}', '{{}}', '{{false,false,false}}'"
        )
    };
    let known = looks("ARRAY[NULL, now() - interval '9 minutes', NULL]");
    let unknown = looks("'{NULL,NULL,NULL}'");
    reads_what_is_ready_and_not_what_was_taken("handler_list_ready", "ready", (&known, 40), &unknown).await;
}

/// Of many queues, only those of handlers with ready runs are looked up.
#[tokio::test]
async fn lookup_of_many_ready_queues_skips_the_index_entries_of_claimed_runs() {
    let repeated = |of: &dyn Fn(usize) -> String| (0..100).map(of).collect::<Vec<_>>().join(",");
    let names = repeated(&|n| if n == 7 { "many".to_owned() } else { format!("a{n}") });
    let (queues, unknown) = (repeated(&|_| "0".to_owned()), repeated(&|_| "NULL".to_owned()));
    let position = "now() - interval '9 minutes'";
    let known = repeated(&|n| if n == 7 { position.to_owned() } else { "NULL".to_owned() });
    let looks = |normal: &str| {
        format!(
            "'{{{names}}}', '{{{names}}}', '{{{queues}}}', {normal}, '{{{unknown}}}', '{{{unknown}}}', '{{}}', '{{}}', array_fill(false, ARRAY[100])"
        )
    };
    let (known, unknown) = (looks(&format!("ARRAY[{known}]")), looks(&format!("'{{{unknown}}}'")));
    reads_what_is_ready_and_not_what_was_taken("handler_list_ready", "many_ready", (&known, 40), &unknown)
        .await;
}

/// Arrays of so many queues, as SQL.
fn own_queues(count: usize, positions: &str) -> (String, String, String) {
    let list =
        |of: &dyn Fn(usize) -> String| format!("'{{{}}}'", (0..count).map(of).collect::<Vec<_>>().join(","));
    (list(&|n| format!("own{n}")), list(&|_| "0".to_owned()), list(&|_| positions.to_owned()))
}

#[tokio::test]
async fn lookups_of_ready_queues_read_as_little_among_many_queues_of_others() {
    let pool = database("queues_of_others").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    execute("ALTER TABLE scoop.run SET (autovacuum_enabled = false)".to_owned()).await;
    execute(QUEUES.replace("{name}", "own").replace("{count}", "10")).await;
    let mut blocks = vec![];
    for others in [0, 10_000] {
        execute(QUEUES.replace("{name}", "forged").replace("{count}", &others.to_string())).await;
        execute(QUEUES.replace("{name}", "own1of").replace("{count}", &others.to_string())).await;
        execute("VACUUM ANALYZE scoop.run".to_owned()).await;
        // Few queues, and more than are looked up one by one.
        for own in [2, 100] {
            let (names, queues, unknown) = own_queues(own, "NULL");
            let ready = format!(
                "{names}, {names}, {queues}, {unknown}, {unknown}, {unknown}, '{{}}', '{{}}', array_fill(false, ARRAY[{own}])"
            );
            blocks.push(blocks_of(&pool, "handler_list_ready", &ready).await);
            let due = format!(
                "{names}, {names}, '{}', {queues}, true, {unknown}, {unknown}, {unknown}, '{{}}', '{{}}', array_fill(false, ARRAY[{own}])",
                Uuid::nil()
            );
            blocks.push(blocks_of(&pool, "run_next_due", &due).await);
        }
    }
    let (few, many) = blocks.split_at(4);
    assert_eq!(few.len(), many.len());
    for (nth, (few, many)) in few.iter().zip(many).enumerate() {
        assert!(*many < 4 * few + 100, "lookup {nth}: {many} blocks among many queues, {few} among few");
    }
    done(pool).await;
}

/// Runs of one handler that are claimed and ended while another session keeps a snapshot from before. `{first}` and `{last}` are their numbers.
const WORKED_OFF: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5('dead' || n)::uuid, 'a', '{}' FROM generate_series({first}, {last}) n;
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, ready_at, last_event_at)
    SELECT id, id, ARRAY[id, id], id, 'a', 'saga', clock_timestamp(), now()
    FROM generate_series({first}, {last}) n CROSS JOIN LATERAL (SELECT md5('dead' || n)::uuid AS id) ids;
    UPDATE scoop.run SET parked_since = ready_at, limit_key = 'k', ready_at = '9999-12-31' WHERE handler = 'saga';
    UPDATE scoop.run SET state = 'running', parked_since = NULL WHERE handler = 'saga';
    INSERT INTO scoop.limit_log (saga, number, root, run, key)
    SELECT 'saga', n, id, id, 'k' FROM generate_series({first}, {last}) n CROSS JOIN LATERAL (SELECT md5('dead' || n)::uuid AS id) ids;
    DELETE FROM scoop.run WHERE handler = 'saga'";

/// As with a `pg_dump` or a query of hours: no dead row can be removed, however many runs have been worked off since.
#[tokio::test]
async fn looks_at_queues_read_as_little_beside_an_old_snapshot_after_many_runs() {
    let pool = database("old_snapshot").await;
    let (store, worker, _) = launching(&pool).await;
    let execute = async |sql: &str| {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&pool).await.map(drop).unwrap()
    };
    let mut reader = pool.acquire().await.unwrap();
    let open = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM scoop.run";
    sqlx::raw_sql(open).execute(&mut *reader).await.unwrap();
    let mut cursors = QueueCursors::default();
    let mut blocks = vec![];
    for (first, last) in [(1, 100), (101, 20_100)] {
        execute(&WORKED_OFF.replace("{first}", &first.to_string()).replace("{last}", &last.to_string()))
            .await;
        // The first claim after the transaction that wrote these reads them once.
        assert!(claim(&store, worker, &mut cursors).await.is_empty());
        let mut positions = vec![];
        for level in Priority::ALL {
            let reached = cursors.since(&queues(), level)[0].expect("it has looked");
            positions.push(format!("ARRAY['{reached}'::timestamptz]"));
        }
        let [high, normal, low] = &positions[..] else { unreachable!() };
        let known = format!("{normal}, {high}, {low}, '{{}}', '{{}}', '{{false}}'");
        let queue = "'{a}', '{saga}'";
        let values = [
            (
                "run_claim",
                format!(
                    "'{worker}', '', {queue}, 100, '{{}}', '{{}}', {normal}, '{{0}}', 0, NULL, {high}, {low}, '{{}}', '{{}}', '{{false}}'"
                ),
            ),
            ("handler_list_ready", format!("{queue}, '{{0}}', {known}")),
            ("run_next_due", format!("{queue}, '{worker}', '{{0}}', true, {known}")),
            ("limit_candidates", format!("{queue}, '{{0}}', 100, NULL, 1000, {known}")),
            ("limit_follow", format!("'saga', {last}, '{{}}', '{{}}', '{{}}', true")),
            ("limit_unpark", format!("{queue}, '{{0}}', '{{k}}', '{{4}}', {normal}, '{{false}}'")),
        ];
        for (statement, values) in &values {
            blocks.push((*statement, blocks_of(&pool, statement, values).await));
        }
        let unknown = values[0].1.replace(normal, "'{NULL}'").replace(high, "'{NULL}'");
        let all = blocks_of(&pool, "run_claim", &unknown).await;
        assert!(all > (last - first) / 50, "{all} blocks: the dead entries are not there");
        let all = blocks_of(&pool, "limit_unpark", &values[5].1.replace(normal, "'{NULL}'")).await;
        assert!(all > (last - first) / 50, "{all} blocks: the dead entries of parked runs are not there");
    }
    let (few, many) = blocks.split_at(6);
    assert_eq!(few.len(), many.len());
    for ((statement, few), (_, many)) in few.iter().zip(many) {
        assert!(*many <= few + 10, "{statement} reads {many} blocks after many runs, {few} after few");
    }
    drop(reader);
    done(pool).await;
}

/// Runs of another saga, in all states that a serial run can be in.
const OF_ANOTHER_SAGA: &str = "
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, state, ready_at, last_event_at)
    SELECT id, id, ARRAY[id, id], id, 'b', 'another',
           (ARRAY['ready', 'running', 'waiting', 'stuck', 'failed']::scoop.run_state[])[1 + n % 5], now(), now()
    FROM generate_series(1, 20000) n CROSS JOIN LATERAL (SELECT md5('another' || n)::uuid AS id) ids;
    INSERT INTO scoop.run_limit (saga, handlers, concurrency, concurrency_by_key, serial, key_from)
    VALUES ('saga', '{saga}', 1, true, {serial}, 'k');
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, ready_at, parked_since, limit_key, last_event_at)
    SELECT id, id, ARRAY[id, id], id, 'a', 'saga', state, '9999-12-31',
           CASE WHEN number > 2 THEN now() END, 'k', now()
    FROM (VALUES (1, 'running'::scoop.run_state), (2, 'ready'), (3, 'ready')) AS own (number, state)
    CROSS JOIN LATERAL (SELECT md5('own' || number)::uuid AS id) ids";

#[tokio::test]
async fn runs_that_count_for_a_limit_are_read_without_those_of_other_sagas() {
    for (serial, expected) in [(false, 1), (true, 2)] {
        let pool = database(&format!("counted_{serial}")).await;
        launching(&pool).await;
        let rows = OF_ANOTHER_SAGA.replace("{serial}", &serial.to_string());
        sqlx::raw_sql(AssertSqlSafe(rows)).execute(&pool).await.unwrap();
        sqlx::raw_sql("VACUUM ANALYZE scoop.run").execute(&pool).await.unwrap();
        let blocks = blocks_of(&pool, "limit_running", &format!("'saga', '{{saga}}', {serial}")).await;
        assert!(blocks < 100, "{blocks} blocks, serial = {serial}");
        let parked = "SELECT id FROM scoop.run WHERE handler = 'saga' AND parked_since IS NOT NULL";
        let parked: Uuid = sqlx::query_scalar(parked).fetch_one(&pool).await.unwrap();
        let blocks = blocks_of(&pool, "run_explain", &format!("'{parked}', '{parked}', 10, 10")).await;
        assert!(blocks < 200, "{blocks} blocks of the explanation, serial = {serial}");
        let sql = Statements::new(&Schema::new("scoop").unwrap()).limit_running;
        let counted =
            sqlx::query(sql).bind("saga").bind(["saga"]).bind(serial).fetch_all(&pool).await.unwrap();
        assert_eq!(counted.len(), expected);
        done(pool).await;
    }
}
