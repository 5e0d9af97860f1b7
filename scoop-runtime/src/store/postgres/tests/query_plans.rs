//! The plans of frequent statements, independent of the tables' contents and the server's statistics: each finds its
//! rows by an index, and reads no more than these.

use std::time::SystemTime;

use scoop_core::SignalKey;
use sqlx::{AssertSqlSafe, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::super::pool::SESSION;
use super::super::{ConnectionSettings, PostgresStore, Schema, Sessions, Statements, migrate};
use super::{database, done};
use crate::find::{CountLimits, PageSize, RunFilter};
use crate::store::{
    ExpiredSignals, FindStorage as _, Page, RebuildStorage as _, RepairStorage as _, RequestStorage as _,
    SignalStorage as _, StatusStorage as _,
};
use crate::tree::{Extent, RunRow};
use crate::{RepairStatus, RunId, RunPhase};

/// The statements of each step, claim, launch, lookup or second, and of each cancelled run; those that list, show and
/// explain runs; and those of rollbacks and redeliveries.
const HOT: [&str; 94] = [
    "run_claim",
    "limit_lock",
    "limit_count",
    "limit_candidates",
    "limit_claim",
    "limit_count_keys",
    "limit_list_keys",
    "limit_park",
    "limit_unpark",
    "limit_unpark_orphaned",
    "rate_read",
    "rate_write",
    "rate_due",
    "rate_next",
    "rate_delete_idle",
    "settle_advance_one",
    "settle_end_one",
    "settle_launch_many",
    "settle_launch_one",
    "settle_request_rollback_many",
    "settle_advance_many",
    "settle_general",
    "run_wake",
    "run_next_due",
    "store_sizes",
    "handler_list_ready",
    "run_mark_overdue",
    "run_give_up_reasons",
    "run_stop_deadlines",
    "run_children",
    "run_history",
    "run_count_repetitions",
    "run_values",
    "run_mark_cancelled",
    "run_delete_pending",
    "cancellation_check",
    "message_insert_many",
    "message_insert_one",
    "message_insert_one_claiming",
    "message_status",
    "key_kept_until",
    "signal_awaited",
    "signal_deliver",
    "signal_expire_kept",
    "signal_send",
    "join_oldest",
    "join_next_due",
    "join_overdue",
    "join_mark",
    "join_explain",
    "join_record",
    "join_set_aside",
    "entity_lock_free",
    "entity_events",
    "entity_keys",
    "entity_lock",
    "entity_write",
    "entity_lock_in_step",
    "entity_insert_in_step",
    "entity_write_in_step",
    "command_read_decision",
    "prune_page",
    "prune_page_kept",
    "archive_parts",
    "archive_rows",
    "keep_time_publish",
    "run_page_unfinished",
    "run_page_finished",
    "run_count_finished",
    "run_count_unfinished",
    "rebuild_compare",
    "repeated_failure_unmatched",
    "rollback_failure_compare",
    "rollback_failure_count",
    "rollback_failure_page",
    "event_insert_operator",
    "run_contents",
    "run_durations",
    "event_activity",
    "handler_emissions",
    "entity_names",
    "run_explain",
    "run_explain_below",
    "run_explain_ended",
    "rollback_failure_below",
    "rollback_failure_waits",
    "run_is_reachable",
    "event_follow",
    "run_tree",
    "request_list",
    "intervention_of_runs",
    "rollback_check",
    "redeliver_find",
    "redeliver",
];

/// Statements that go through the index of ready runs or of a list from one handler to the next, or through that of
/// deadlines from the earliest on, and stop.
const WALKS: [&str; 14] = [
    "limit_unpark_orphaned",
    "run_next_due",
    "handler_list_ready",
    "run_mark_overdue",
    "run_page_unfinished",
    "run_page_finished",
    "run_count_finished",
    "run_count_unfinished",
    "rollback_failure_compare",
    "rollback_failure_count",
    "run_durations",
    "entity_names",
    "run_explain",
    "run_explain_below",
];

/// The tables that grow.
const TABLES: [&str; 12] = [
    "on run",
    "on message",
    "on message_event",
    "on return_value",
    "on join_member",
    "on signal",
    "on execution",
    "on entity",
    "on entity_event",
    "on kept_hierarchy",
    "on rollback_failure",
    "on intervention",
];

/// Statements in transactions of the user. The settings of those sessions are not ours.
const AMONG_THE_USERS: [&str; 7] = [
    "settle_advance_one",
    "settle_end_one",
    "settle_launch_one",
    "message_insert_one",
    "entity_lock_in_step",
    "entity_insert_in_step",
    "entity_write_in_step",
];

/// The `PREPARE` of a statement, and values for it.
fn prepared(statement: &str) -> (String, &'static str) {
    let statements = Statements::of(&Schema::new("scoop").unwrap()).all();
    let (_, text) = statements.iter().find(|(name, _)| *name == statement).unwrap();
    let (types, values) = match statement {
        "run_claim" => (
            "uuid, text, text[], text[], bigint, jsonb, uuid[], timestamptz[], int[], bigint, uuid[], timestamptz[], \
             timestamptz[]",
            "gen_random_uuid(), '', '{}', '{}', 1, '{}', '{}', '{}', '{}', 0, NULL, '{}', '{}'",
        ),
        "settle_general" => ("jsonb, text, text", "'[]', '', NULL"),
        "run_wake" => (
            "jsonb, uuid, text[], text[], bigint, text[], text, uuid[], int[], int[], bigint",
            "'[]', gen_random_uuid(), '{}', '{}', 1, '{}', '', '{}', '{}', '{}', 0",
        ),
        "run_next_due" => {
            let types = "text[], text[], uuid, int[], boolean, timestamptz[], timestamptz[], timestamptz[]";
            (types, "'{}', '{}', gen_random_uuid(), '{}', true, '{}', '{}', '{}'")
        }
        "handler_list_ready" => (
            "text[], text[], text[], text[], timestamptz[], int[], int[], int[]",
            "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'",
        ),
        "run_mark_overdue" => ("bigint", "1"),
        "run_give_up_reasons" => ("uuid, uuid, bigint", "gen_random_uuid(), gen_random_uuid(), 1"),
        "run_children" => (
            "uuid[], uuid, text, boolean, text[], text, boolean, timestamptz",
            "NULL, gen_random_uuid(), '', true, '{}', NULL, false, NULL",
        ),
        "run_history" => {
            ("uuid, text, text, bigint, timestamptz", "gen_random_uuid(), '', 'Rollback of ', 128, NULL")
        }
        "run_count_parts" => ("uuid, text, timestamptz, timestamptz", "gen_random_uuid(), '', now(), NULL"),
        "run_count_repetitions" => {
            ("uuid, text, timestamptz, text[], timestamptz", "gen_random_uuid(), '', now(), '{}', NULL")
        }
        "run_outputs" => ("uuid, text, text[]", "gen_random_uuid(), '', NULL"),
        "run_values" => ("uuid, text, text[], text[], text[]", "gen_random_uuid(), '', '{}', '{}', '{}'"),
        "run_stop_deadlines" => ("uuid[], uuid[], bigint[]", "'{}', '{}', '{}'"),
        "settle_advance_one" => (
            "uuid, uuid, bigint, text, int, int, int, int, jsonb, bool, jsonb, text, jsonb, uuid, text, \
             int, jsonb, text, uuid, int, jsonb, text, text",
            "gen_random_uuid(), gen_random_uuid(), 1, '', 1, 0, NULL, 1, NULL, false, NULL, NULL, NULL, \
             NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL, ''",
        ),
        "settle_end_one" => (
            "uuid, uuid, bigint, text, int, int, int, int, jsonb, bool, jsonb, text, jsonb, uuid, text, \
             int, jsonb, text, uuid, int, jsonb, text, text",
            "gen_random_uuid(), gen_random_uuid(), 1, '', 1, 0, NULL, 1, NULL, false, NULL, NULL, NULL, \
             gen_random_uuid(), NULL, NULL, NULL, 'COMMITTED', gen_random_uuid(), 1, NULL, NULL, ''",
        ),
        "settle_advance_many" => (
            "uuid[], uuid[], bigint[], text[], int[], int[], int[], int[], jsonb[], bool[], jsonb[], \
             text[], jsonb[], uuid[], text[], int[], jsonb[], text[], uuid[], int[], jsonb[], text, text",
            "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', \
             '{}', '{}', '{}', '{}', '{}', '{}', NULL, ''",
        ),
        "settle_launch_one" => (
            "uuid, uuid, bigint, text, int, int, int, int, jsonb, bool, jsonb, text, jsonb, uuid, text, \
             int, jsonb, text, uuid, int, jsonb, text, text, bigint[], int[], uuid[], uuid[], text[], \
             jsonb[], jsonb[], uuid[]",
            "gen_random_uuid(), gen_random_uuid(), 1, '', 1, 0, NULL, 1, NULL, false, NULL, NULL, NULL, \
             NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL, '', '{}', '{}', '{}', '{}', '{}', '{}', \
             '{}', '{}'",
        ),
        "settle_launch_many" => (
            "uuid[], uuid[], bigint[], text[], int[], int[], int[], int[], jsonb[], bool[], jsonb[], \
             text[], jsonb[], uuid[], text[], int[], jsonb[], text[], uuid[], int[], jsonb[], text, text, \
             bigint[], int[], uuid[], uuid[], text[], jsonb[], jsonb[], uuid[]",
            "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', \
             '{}', '{}', '{}', '{}', '{}', '{}', NULL, '', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'",
        ),
        "settle_request_rollback_many" => (
            "uuid[], uuid[], bigint[], text[], int[], int[], int[], int[], jsonb[], bool[], jsonb[], \
             text[], jsonb[], uuid[], text[], int[], jsonb[], text[], uuid[], int[], jsonb[], text, text, \
             bigint[], int[], uuid[], uuid[]",
            "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', \
             '{}', '{}', '{}', '{}', '{}', '{}', NULL, '', '{}', '{}', '{}', '{}'",
        ),
        "message_insert_many" => (
            "uuid[], uuid[], uuid[], uuid[], text[], jsonb[], jsonb[], timestamptz[], timestamptz[]",
            "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'",
        ),
        "message_insert_one" => (
            "uuid, uuid, uuid, uuid, text, jsonb, jsonb, timestamptz, timestamptz",
            "gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), '', '0', NULL, NULL, NULL",
        ),
        "message_insert_one_claiming" => (
            "uuid, uuid, uuid, text, jsonb, jsonb, uuid, text, text[], uuid[], uuid[], bigint",
            "gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), '', '0', NULL, gen_random_uuid(), '', '{}', '{}', '{}', 0",
        ),
        "join_oldest" => ("text, text, text[], int", "'', '', '{}', 1"),
        "join_next_due" => {
            ("text[], text[], bigint, timestamptz, uuid", "'{}', '{}', 1, '-infinity', gen_random_uuid()")
        }
        "join_record" => (
            "uuid, uuid, bigint, text, text, text, uuid, float8, int, text",
            "gen_random_uuid(), gen_random_uuid(), 1, '', '', '', gen_random_uuid(), NULL, 1, NULL",
        ),
        "join_overdue" => ("text, text, text[], int, uuid", "'', '', '{}', 1, gen_random_uuid()"),
        "limit_lock" => ("uuid, bigint, text", "NULL, 0, ''"),
        "limit_count" => ("text[], bigint", "'{}', 1"),
        "limit_candidates" => {
            let types =
                "text[], text[], int[], bigint, uuid[], bigint, timestamptz[], timestamptz[], timestamptz[]";
            (types, "'{}', '{}', '{}', 1, NULL, 1000000, '{}', '{}', '{}'")
        }
        "limit_claim" => (
            "uuid, text, uuid[], uuid[], bigint, text[], uuid[]",
            "gen_random_uuid(), '', '{}', '{}', 1, '{}', '{}'",
        ),
        "limit_count_keys" => ("text[], text[]", "'{}', '{}'"),
        "limit_list_keys" => {
            ("text[], text[], int[], text, bigint, text, bigint", "'{}', '{}', '{}', '', 1001, '', 0")
        }
        "limit_park" => ("uuid[], uuid[], text[]", "'{}', '{}', '{}'"),
        "limit_unpark" => ("text[], text[], int[], text[], bigint[]", "'{}', '{}', '{}', '{}', '{}'"),
        "limit_unpark_orphaned" => ("bigint", "1000"),
        "rate_read" => ("text, text[]", "'', '{}'"),
        "rate_write" => {
            ("text, text[], jsonb[], boolean[], bigint[], bigint[]", "'', '{}', '{}', '{}', '{}', '{}'")
        }
        "rate_due" | "rate_delete_idle" => ("text, bigint", "'', 1"),
        "rate_next" => ("text", "''"),
        "join_mark" => ("uuid[], uuid", "'{}', NULL"),
        "join_explain" | "key_kept_until" => ("uuid", "NULL"),
        "join_set_aside" => ("uuid[], text", "'{}', ''"),
        "signal_deliver" => {
            ("text[], text[], text, uuid[], boolean, text", "'{}', '{}', NULL, '{}', false, '20ms'")
        }
        "signal_awaited" => ("text", "'0'"),
        "signal_expire_kept" => ("bigint", "1"),
        "entity_lock_free" => ("text[], text[]", "'{}', '{}'"),
        "entity_events" => ("text, text, bigint, bigint", "'', '', 0, 1"),
        "entity_keys" => ("text, text, bigint", "'', '', 1"),
        "entity_lock" | "entity_lock_in_step" | "entity_insert_in_step" => ("text, text", "'', ''"),
        "entity_write_in_step" => {
            ("text, text, bigint, bigint[], uuid[], uuid[]", "'', '', 0, '{}', '{}', '{}'")
        }
        "signal_send" => (
            "uuid, text, text, jsonb, float8, uuid, text[], text[], int[], bigint, bigint, text",
            "gen_random_uuid(), '', '', '0', 1, gen_random_uuid(), '{}', '{}', '{}', 1, 0, NULL",
        ),
        "entity_write" => (
            "text[], text[], bigint[], jsonb[], text[], text[], bigint[], uuid[], uuid[]",
            "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'",
        ),
        "command_read_decision" => ("uuid, text, uuid", "gen_random_uuid(), '', NULL"),
        "prune_page" | "prune_page_kept" => ("uuid, float8, bigint", "gen_random_uuid(), 1, 1000"),
        "keep_time_publish" => {
            ("text[], text[], float8[], float8[], float8[], boolean", "'{}', '{}', '{}', '{}', '{}', true")
        }
        "retention_next" => ("uuid, float8, float8, bigint, boolean", "gen_random_uuid(), 1, 1, 100, true"),
        "retention_settle" => (
            "uuid, float8, float8, uuid[], uuid[], uuid, boolean, float8",
            "gen_random_uuid(), 1, 1, '{}', '{}', gen_random_uuid(), true, 1",
        ),
        "retention_put_off" => ("uuid, text, float8", "gen_random_uuid(), '', 1"),
        "retention_undeletable" => ("bigint", "10"),
        "prune_deletable" => ("uuid[], float8, float8, boolean", "'{}', 1, 1, true"),
        "archive_parts" => ("uuid", "gen_random_uuid()"),
        "archive_rows" => ("uuid[]", "ARRAY[gen_random_uuid()]"),
        "prune_hierarchies" => ("uuid[], float8, boolean", "'{}', 1, true"),
        "run_page_unfinished" => (
            "text, text, text[], text[], timestamptz, timestamptz, text, text[], int, uuid, bigint, bigint",
            "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 51, 102",
        ),
        "run_page_finished" => (
            "text, text, text[], timestamptz, timestamptz, text, int, timestamptz, uuid, bigint, bigint",
            "NULL, NULL, '{COMMITTED}', NULL, NULL, NULL, NULL, NULL, NULL, 51, 102",
        ),
        "run_count_finished" => ("timestamptz, bigint, bigint", "now(), 1, NULL"),
        "run_count_unfinished" => ("bigint, bigint", "100, NULL"),
        "repeated_failure_unmatched" => ("bigint, bigint", "10000, 100"),
        "rollback_failure_compare" => ("bigint, bigint, bigint", "10000, 1000, 100"),
        "rollback_failure_count" => ("bigint, bigint", "1000, NULL"),
        "rollback_failure_page" => ("timestamptz, uuid, bigint, bigint", "NULL, NULL, 50, 10"),
        "run_page_stuck" => ("timestamptz, uuid, bigint", "NULL, NULL, 50"),
        "event_insert_operator" => ("jsonb, text, timestamptz, uuid", "'[]', '', now(), gen_random_uuid()"),
        "run_explain" => ("uuid, uuid, bigint, bigint", "gen_random_uuid(), gen_random_uuid(), 1, 1"),
        "run_explain_below" => ("uuid, uuid, bigint", "gen_random_uuid(), gen_random_uuid(), 1"),
        "run_contents" => (
            "uuid[], uuid[], text[], bigint, int",
            "ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], '{a}', 51, 65536",
        ),
        "rebuild_compare" => (
            "jsonb, uuid, uuid, uuid[], timestamptz",
            "'[]', '00000000-0000-0000-0000-000000000000', gen_random_uuid(), '{}', now()",
        ),
        "run_durations" => ("timestamptz, bigint, bigint, bigint", "now(), 200, 5000, 1000"),
        "event_activity" => ("uuid[], uuid[], bigint", "'{}', '{}', 500"),
        "handler_emissions" => ("uuid, bigint", "gen_random_uuid(), 10000"),
        "entity_names" => ("bigint", "1000"),
        "intervention_list" | "run_explain_ended" => ("uuid", "gen_random_uuid()"),
        "rollback_failure_below" => {
            ("uuid, uuid, boolean, bigint", "gen_random_uuid(), gen_random_uuid(), false, 11")
        }
        "rollback_failure_waits" => {
            ("uuid, uuid[], bigint", "gen_random_uuid(), ARRAY[gen_random_uuid()], 11")
        }
        "run_is_reachable" => ("uuid, uuid", "gen_random_uuid(), gen_random_uuid()"),
        "event_follow" => (
            "uuid, bigint, bigint, text, uuid[], text, uuid, bigint, boolean",
            "gen_random_uuid(), 0, 1, '1:1:', '{}', NULL, NULL, 1, true",
        ),
        "handler_list" => ("text, text, text, bigint, text, text", "'', '', '', 201, NULL, NULL"),
        "handler_list_retired" => ("bigint", "201"),
        "queue_list" => ("text[]", "'{}'"),
        "rollback_check" => ("uuid, uuid", "gen_random_uuid(), gen_random_uuid()"),
        "redeliver_find" => ("text, timestamptz, uuid, bigint, bigint", "'', now(), gen_random_uuid(), 1, 1"),
        "redeliver" => (
            "uuid[], timestamptz[], timestamptz[], uuid[], uuid[], uuid[]",
            "'{}', '{}', '{}', '{}', '{}', '{}'",
        ),
        "run_tree" => (
            "uuid, int, int, uuid, int, int, int, int, int, bigint",
            "gen_random_uuid(), NULL, NULL, NULL, NULL, 10000, NULL, NULL, NULL, 4194304",
        ),
        "request_list" => ("uuid, uuid[]", "gen_random_uuid(), ARRAY[gen_random_uuid()]"),
        "intervention_of_runs" => (
            "uuid, uuid[], uuid, int, bigint",
            "gen_random_uuid(), ARRAY[gen_random_uuid()], NULL, 500, 10000",
        ),
        "message_status" => ("uuid, uuid", "gen_random_uuid(), gen_random_uuid()"),
        "run_mark_cancelled" | "run_delete_pending" => ("uuid, uuid", "gen_random_uuid(), gen_random_uuid()"),
        "cancellation_check" => {
            ("uuid, uuid, uuid", "gen_random_uuid(), gen_random_uuid(), gen_random_uuid()")
        }
        _ => ("jsonb", "'[]'"),
    };
    (format!("PREPARE p ({types}) AS {}", text.as_str()), values)
}

/// The plan that serves all calls of a statement.
async fn plan_of(pool: &PgPool, statement: &str) -> Vec<String> {
    let (prepare, values) = prepared(statement);
    let mut connection = pool.acquire().await.unwrap();
    let prepare = AssertSqlSafe(format!("{SESSION}; {prepare}"));
    sqlx::raw_sql(prepare).execute(&mut *connection).await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE p ({values})"));
    let lines: Vec<String> = sqlx::raw_sql(explain)
        .fetch_all(&mut *connection)
        .await
        .unwrap()
        .iter()
        .map(|row| sqlx::Row::get(row, 0))
        .collect();
    connection.close().await.unwrap();
    lines
}

/// Whether a session of the user settles for one plan. Otherwise it plans anew for each call, which costs more
/// than the statement.
async fn keeps_its_plan(pool: &PgPool, statement: &str) -> bool {
    let (prepare, values) = prepared(statement);
    let calls = format!("EXECUTE p ({values});").repeat(5);
    let mut connection = pool.acquire().await.unwrap();
    let call = AssertSqlSafe(format!("BEGIN; {prepare}; {calls} ROLLBACK"));
    sqlx::raw_sql(call).execute(&mut *connection).await.unwrap();
    let once_more = AssertSqlSafe(format!("BEGIN; EXECUTE p ({values}); ROLLBACK"));
    sqlx::raw_sql(once_more).execute(&mut *connection).await.unwrap();
    let generic = sqlx::query_scalar("SELECT generic_plans FROM pg_prepared_statements WHERE name = 'p'");
    let generic: i64 = generic.fetch_one(&mut *connection).await.unwrap();
    connection.close().await.unwrap();
    generic == 1
}

/// The objection to a plan, if any.
fn objection(statement: &str, plan: &[String]) -> Option<String> {
    for (at, line) in plan.iter().enumerate() {
        let Some((_, node)) = line.split_once(" Scan ") else {
            continue;
        };
        // There are as many workers as processes.
        if line.contains("Seq Scan") && !line.contains("on worker") {
            return Some(format!("reads a whole table: {line}"));
        }
        let grows =
            TABLES.iter().any(|table| node.split_once(table).is_some_and(|(_, rest)| rest.starts_with(' ')));
        let found = plan[at + 1..].iter().take_while(|line| !line.trim_start().starts_with("->"));
        let looks_up = found.into_iter().any(|line| line.contains(" Cond: "));
        if grows && !looks_up && !WALKS.contains(&statement) {
            return Some(format!("reads a whole index: {line}"));
        }
    }
    None
}

/// Checks every plan.
async fn all_look_up(pool: &PgPool, tables: &str) {
    for statement in HOT {
        let plan = plan_of(pool, statement).await;
        if let Some(objection) = objection(statement, &plan) {
            panic!("with {tables}, {statement} {objection}\nin\n{}", plan.join("\n"));
        }
    }
    for statement in AMONG_THE_USERS {
        assert!(keeps_its_plan(pool, statement).await, "with {tables}, {statement} is planned for each call");
    }
}

/// Twenty thousand runs with their events. Each tenth run waits for a child.
const MANY: &str = "
    INSERT INTO scoop.handler (topic, handler) VALUES ('many', 'many');
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5(n::text)::uuid, 'many', '{}' FROM generate_series(0, 20000) n;
    INSERT INTO scoop.run
        (root, id, parent, lineage, message_id, topic, handler, state, last_event_at)
    SELECT root, id, parent, array_remove(ARRAY[root, parent, id], NULL), root, 'many', 'many',
           CASE WHEN n % 10 = 0 THEN 'waiting' ELSE 'ready' END::scoop.run_state, now()
    FROM generate_series(1, 20000) n
    CROSS JOIN LATERAL (SELECT md5((n - n % 10)::text)::uuid AS root) of
    CROSS JOIN LATERAL (SELECT md5('run' || n)::uuid AS id,
        CASE WHEN n % 10 = 1 THEN md5('run' || n - 1)::uuid END AS parent) ids;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, coroutine_identifier, cooperation_lineage)
    SELECT message_id, 'SUSPENDED', handler, 'a test', lineage
    FROM scoop.run WHERE handler = 'many'";

#[tokio::test]
async fn every_hot_statement_uses_an_index() {
    let pool = database("plans").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    all_look_up(&pool, "fresh tables").await;
    execute("VACUUM ANALYZE").await;
    all_look_up(&pool, "tables that were looked at when they were empty").await;
    execute(MANY).await;
    all_look_up(&pool, "large tables that were looked at when they were empty").await;
    execute("VACUUM ANALYZE").await;
    all_look_up(&pool, "large tables").await;
    execute("DELETE FROM scoop.run WHERE handler = 'many'").await;
    execute("VACUUM ANALYZE").await;
    all_look_up(&pool, "an empty working set and a long history").await;
    done(pool).await;
}

/// The execution of a statement with these values.
async fn carried_out(pool: &PgPool, statement: &str, values: &str) -> serde_json::Value {
    let (prepare, _) = prepared(statement);
    let explain =
        format!("{SESSION}; {prepare}; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE p ({values})");
    explained(pool, explain).await
}

async fn explained(pool: &PgPool, explain: String) -> serde_json::Value {
    let mut connection = pool.acquire().await.unwrap();
    let plan = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_one(&mut *connection).await.unwrap();
    let plan: serde_json::Value = sqlx::Row::get(&plan, 0);
    connection.close().await.unwrap();
    plan[0]["Plan"].clone()
}

/// The number of blocks that a plan read.
fn blocks_read(plan: &serde_json::Value) -> i64 {
    let blocks = |key: &str| plan[key].as_i64().unwrap();
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

/// The number of blocks that a statement reads with these values.
async fn blocks_of(pool: &PgPool, statement: &str, values: &str) -> i64 {
    blocks_read(&carried_out(pool, statement, values).await)
}

/// Claimed runs are not read again, though their index entries are still there. `known` are values with the progress of
/// the queue, with which the statement reads fewer blocks than `at_most`. `unknown` are values without it.
async fn reads_what_is_ready_and_not_what_was_taken(
    statement: &str,
    (known, at_most): (&str, i64),
    unknown: &str,
) {
    let pool = database(&format!("dead_{statement}")).await;
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
            "'{}', '', '{{many}}', '{{many}}', 100, '{{}}', '{{}}', {reached}, '{{0}}', 0, NULL, '{{NULL}}', '{{NULL}}'",
            Uuid::nil()
        )
    };
    let (known, unknown) = (claim("ARRAY[now() - interval '9 minutes']"), claim("'{NULL}'"));
    reads_what_is_ready_and_not_what_was_taken("run_claim", (&known, 20), &unknown).await;
}

/// How often a plan looks into an index.
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
             {reached_high}, '{{NULL,NULL,NULL}}'",
            Uuid::nil()
        );
        let plan = carried_out(&pool, "run_claim", &values).await;
        (lookups(&plan, "run_ready"), lookups(&plan, "run_prioritized"))
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
    assert_eq!(looks("ARRAY[NULL, now(), NULL]").await, (9, 0), "the queue of one level is known");
    done(pool).await;
}

#[tokio::test]
async fn lookup_of_ready_queues_skips_the_index_entries_of_claimed_runs() {
    // The index is read up to the dead entries, and after them, too.
    let looks = |known: &str| format!("'{{many,many,many}}', '{{a,many,z}}', {known}");
    let known = looks("'{many}', '{many}', ARRAY[now() - interval '9 minutes'], '{0,0,0}', '{0}', '{0}'");
    let unknown = looks("'{}', '{}', '{}', '{0,0,0}', '{}', '{}'");
    reads_what_is_ready_and_not_what_was_taken("handler_list_ready", (&known, 40), &unknown).await;
}

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

/// The parameters of `run_tree` after the message, for all of it.
const WHOLE_TREE: &str = "NULL, NULL, NULL, NULL, 10000, NULL, NULL, NULL, 4194304";

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
        CASE WHEN n > 15000 THEN 'Rollback of turn[' || n || ',]' ELSE 'turn' END)) events (type, step)";

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
        let extent = Extent { runs: Some(101), run: only, events: Some(250), ..Extent::default() };
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
            ("run_explain_ended", "md5('run')::uuid"),
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
    let extent = Extent { events: Some(250), ..Extent::default() };
    let read = store.interventions_of(root, Some(&[root, run]), extent).await.unwrap();
    assert_eq!(read.len(), 500);
    assert_eq!(store.interventions_of(root, None, extent).await.unwrap(), read);
    assert!(read.iter().all(|(_, left_out)| *left_out == 10_000), "10,000 stands for more");
    let newest = read.last().unwrap().0.at.duration_since(read[0].0.at).unwrap();
    assert_eq!(newest.as_secs(), 1, "both ends are read");
    let all = store.interventions_of(root, Some(&[run]), Extent::default()).await.unwrap();
    assert_eq!((all.len(), all[0].1), (100_000, 0));
    assert_eq!(store.interventions_of(root, None, Extent::default()).await.unwrap(), all);
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
    let extent = Extent { events: Some(2), ..Extent::default() };
    let ends = store.interventions_of(root, None, extent).await.unwrap();
    let numbers = ends.iter().map(|(done, left_out)| {
        (done.at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - 1_577_836_800, *left_out)
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3, 4, 7, 8, 9, 10].map(|number| (number, 1)));
    done(pool).await;
}

/// Finished hierarchies, each of a run and a child.
const FINISHED: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5(message || n)::uuid, 'finished', '{}'
    FROM generate_series({from}, {to}) n, (VALUES ('root'), ('child')) messages (message);
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, created_at)
    SELECT md5(message || n)::uuid, type::scoop.message_event_type, handler,
           (ARRAY[md5('hierarchy' || n)::uuid, md5('run' || n)::uuid, md5('below' || n)::uuid])[:depth],
           '2020-01-01Z'::timestamptz + at * interval '1 second'
    FROM generate_series({from}, {to}) n, (VALUES
        ('root', 'EMITTED', NULL, 1, 1), ('root', 'SEEN', 'saga', 2, 2), ('child', 'EMITTED', 'saga', 2, 3),
        ('child', 'SEEN', 'item', 3, 4), ('child', 'COMMITTED', 'item', 3, 5), ('root', 'COMMITTED', 'saga', 2, 6)
    ) events (message, type, handler, depth, at);
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT ARRAY[md5('hierarchy' || n)::uuid, md5('run' || n)::uuid], 'saga', 'Output of a#0000000000', '1'
    FROM generate_series({from}, {to}) n;
    INSERT INTO scoop.entity_event (name, key, version, message_id, run)
    SELECT 'entity', n::text, 1, gen_random_uuid(), gen_random_uuid() FROM generate_series({from}, {to}) n";

/// Also when the planner takes the tables for small ones.
#[tokio::test]
async fn a_deletion_reads_blocks_in_proportion_to_the_hierarchies() {
    let pool = database("prune").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let mut blocks = vec![];
    for (from, to) in [(1, 200), (201, 10_000)] {
        execute(FINISHED.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())).await;
        let roots: Vec<_> = (from..from + 100).map(|n| format!("md5('hierarchy{n}')::uuid")).collect();
        let values = format!("ARRAY[{}], 7200, false", roots.join(","));
        blocks.push(blocks_of(&pool, "prune_hierarchies", &values).await);
        execute("VACUUM ANALYZE".into()).await;
    }
    let left = "SELECT count(*) FROM scoop.message_event";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&pool).await.unwrap();
    assert_eq!(left, (10_000 - 200) * 6);
    assert!(blocks[1] < 2 * blocks[0], "{blocks:?} blocks with 200 and 10,000 hierarchies");
    done(pool).await;
}

/// Also when the planner takes the tables for small ones. What is kept costs nothing.
#[tokio::test]
async fn a_look_for_due_hierarchies_reads_the_same_blocks_among_many_kept_ones() {
    const KEPT: &str = "
        INSERT INTO scoop.kept_hierarchy (root, topic, kind, since)
        SELECT md5('hierarchy' || n)::uuid, 'topic' || n % 3, kind, now()
        FROM generate_series({from}, {to}) n
        CROSS JOIN LATERAL (SELECT (ARRAY['committed', 'rolled_back'])[n % 2 + 1] AS kind) kinds;
        UPDATE scoop.retention SET taken_until = NULL,
            after_event = (SELECT e.id FROM scoop.message_event e ORDER BY e.id DESC LIMIT 1)";
    let pool = database("due").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let numbered = |sql: &str, from: i32, to: i32| {
        sql.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())
    };
    let mut blocks = vec![];
    for (from, to) in [(1, 200), (201, 10_000)] {
        execute(numbered(FINISHED, from, to)).await;
        execute(numbered(KEPT, from, to)).await;
        execute(numbered(FINISHED, from + 1_000_000, from + 1_000_100)).await;
        blocks.push(blocks_of(&pool, "retention_next", "gen_random_uuid(), 7200, 7200, 100, true").await);
        execute("VACUUM ANALYZE".into()).await;
    }
    assert!(blocks[1] < 2 * blocks[0], "{blocks:?} blocks with 200 and 10,000 kept hierarchies");
    done(pool).await;
}

/// Events, of which a page of a thousand is read at a time. Their ids have the order of their rows: generated ids have it only
/// from millisecond to millisecond, so that the blocks of a page would depend on the speed of the insertion.
const FOLLOWED: &str = "
    INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, cooperation_lineage)
    SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, gen_random_uuid(), 'SUSPENDED', 'followed',
           ARRAY[gen_random_uuid(), gen_random_uuid()]
    FROM generate_series({from}, {to}) n;
    INSERT INTO scoop.repeated_failure (id, root, run, handler, message_id, worker, step, exception, failed_at)
    SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 11, '0') || 'a')::uuid, gen_random_uuid(), gen_random_uuid(), 'followed',
           gen_random_uuid(), 'worker', 'step', '{}', now()
    FROM generate_series({from}, {to}) n";

/// Also when the planner takes the table for a small one.
#[tokio::test]
async fn a_follower_reads_blocks_in_proportion_to_the_events() {
    let pool = database("followed").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let (mut there, mut blocks) = (0, vec![]);
    for events in [3_000_i64, 30_000] {
        execute(FOLLOWED.replace("{from}", &(there + 1).to_string()).replace("{to}", &events.to_string()))
            .await;
        there = events;
        let ends =
            "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS nth FROM scoop.message_event) e
            WHERE nth % 1000 = 0 ORDER BY id";
        let ends: Vec<Uuid> = sqlx::query_scalar(ends).fetch_all(&pool).await.unwrap();
        let snapshot: String =
            sqlx::query_scalar("SELECT pg_current_snapshot()::text").fetch_one(&pool).await.unwrap();
        let mut read = 0;
        for after in [Uuid::nil()].into_iter().chain(ends) {
            let values =
                format!("'{after}', 0, 9000000000000000000, '{snapshot}', '{{}}', NULL, NULL, 1000, true");
            let plan = carried_out(&pool, "event_follow", &values).await;
            read += blocks_read(&plan);
        }
        blocks.push(read);
        execute("VACUUM ANALYZE".into()).await;
    }
    assert!(blocks[0] > 3 && blocks[1] < 12 * blocks[0], "{blocks:?} blocks for 3,000 and 30,000 events");
    done(pool).await;
}

/// The lineage of a forged event may have any number of ids.
#[tokio::test]
async fn follower_reads_the_first_and_the_last_id_of_a_long_lineage() {
    let pool = database("followed_lineage").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let forge = "INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
        SELECT gen_random_uuid(), 'SUSPENDED', 'forged', md5('root')::uuid || array_agg(gen_random_uuid()) || md5('run')::uuid
        FROM generate_series(1, 10000)";
    sqlx::raw_sql(forge).execute(&pool).await.unwrap();
    let (prepare, _) = prepared("event_follow");
    let read = format!(
        "{prepare};
         CREATE TEMPORARY TABLE page AS EXECUTE p (
             '00000000-0000-0000-0000-000000000000', 0, 9000000000000000000, pg_current_snapshot()::text, '{{}}', NULL, NULL, 10, true);
         SELECT hierarchy = md5('root')::uuid AND run = md5('run')::uuid, octet_length(page::text) FROM page"
    );
    let mut connection = pool.acquire().await.unwrap();
    let row = sqlx::raw_sql(AssertSqlSafe(read)).fetch_one(&mut *connection).await.unwrap();
    connection.close().await.unwrap();
    assert!(sqlx::Row::get::<bool, _>(&row, 0));
    let bytes: i32 = sqlx::Row::get(&row, 1);
    assert!(bytes < 1_000, "{bytes} bytes");
    done(pool).await;
}

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
    let ended = "NULL, NULL, '{COMMITTED,ROLLED_BACK}', NULL, NULL, NULL, NULL, NULL, NULL, 51, 102";
    let undone = "'listed0', NULL, '{ROLLED_BACK}', NULL, NULL, 'none', NULL, NULL, NULL, 51, 200";
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
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, created_at)
    SELECT gen_random_uuid(), 'COMMITTED', 'saga' || n % {sagas}, ARRAY[gen_random_uuid(), gen_random_uuid()],
           '2020-01-01Z'::timestamptz - n % {times} * interval '1 second'
    FROM generate_series(1, {ends}) n";

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
        let values = format!("NULL, NULL, '{{COMMITTED}}', NULL, NULL, NULL, NULL, {place}, 51, 102");
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
    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    let times = "SELECT DISTINCT created_at FROM scoop.message_event ORDER BY 1";
    let times: Vec<OffsetDateTime> = sqlx::query_scalar(times).fetch_all(&pool).await.unwrap();
    for (since, until) in
        [(None, None), (Some(times[2]), None), (None, Some(times[4])), (Some(times[1]), Some(times[5]))]
    {
        let in_order = "
            SELECT cooperation_lineage[2] FROM scoop.message_event
            WHERE created_at >= coalesce($1, '-infinity') AND created_at < coalesce($2, 'infinity')
            ORDER BY created_at DESC, 1 DESC";
        let in_order = sqlx::query_scalar(in_order).bind(since).bind(until);
        let in_order: Vec<Uuid> = in_order.fetch_all(&pool).await.unwrap();
        let filter = RunFilter { since, until, ..RunFilter::default() };
        let (mut listed, mut place) = (vec![], None);
        loop {
            let page = PageSize { runs: 7, reads: 9 };
            let part = store.finished_runs(&filter, place, page).await.unwrap();
            listed.extend(part.runs.iter().map(|run| run.run.uuid()));
            place = part.next;
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
            ("run_outputs", "md5('run')::uuid, 'saga', '{Output of fetch#0000200000}'"),
        ] {
            let plan = carried_out(&pool, statement, asked).await;
            let blocks = blocks_read(&plan);
            assert!(blocks < 120, "{statement}: {blocks} blocks, analyzed: {looked_at}, in {plan:#}");
        }
    }
    all_look_up(&pool, "one run that has most of the events").await;
    done(pool).await;
}

/// The number of blocks of temporary files that the parts of a plan wrote, each with those below it.
fn blocks_written_aside(plan: &serde_json::Value) -> i64 {
    let below = plan["Plans"].as_array().into_iter().flatten().map(blocks_written_aside);
    plan["Temp Written Blocks"].as_i64().unwrap() + below.sum::<i64>()
}

#[tokio::test]
async fn large_payloads_are_written_once() {
    let pool = database("payloads").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let ids = |count: usize| {
        let ids: Vec<_> = (0..count).map(|_| Uuid::now_v7().to_string()).collect();
        format!("'{{{}}}'", ids.join(","))
    };
    let (root, first, second) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    let runs = format!(
        "INSERT INTO scoop.handler (topic, handler) VALUES ('large', 'large');
         INSERT INTO scoop.message (id, topic, payload) VALUES ('{root}', 'large', '0');
         INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, state, owner, epoch, last_event_at)
         SELECT '{root}', id, ARRAY['{root}', id], '{root}', 'large', 'large', 'running', id, 1, now()
         FROM unnest('{{{first},{second}}}'::uuid[]) AS run (id)",
    );
    sqlx::raw_sql(AssertSqlSafe(runs)).execute(&pool).await.unwrap();
    // 20 MB, five times what a statement may have in memory.
    let count = 100;
    let each = |value: &str| format!("array_fill({value}, ARRAY[{count}])");
    let (topics, none) = (each("'large'::text"), each("NULL::jsonb"));
    let payloads = each("to_jsonb(repeat('0123456789', 20000))");
    let places: Vec<_> = (1..=count).rev().map(|place| place.to_string()).collect();
    let places = format!("'{{{}}}'", places.join(","));
    let messages = || {
        format!(
            "{}, {places}, {}, {}, {topics}, {payloads}, {none}, {}",
            each("1"),
            ids(count),
            ids(count),
            ids(count)
        )
    };
    let of_one = format!(
        "'{root}', '{first}', 1, 'step', NULL, 0, NULL, 1, NULL, false, NULL, NULL, NULL, gen_random_uuid(), NULL, 1, \
         NULL, NULL, NULL, {count}, NULL, NULL, 'w', {}",
        messages(),
    );
    let of_many = format!(
        "'{{{root}}}', '{{{second}}}', '{{1}}', '{{step}}', '{{NULL}}', '{{0}}', '{{NULL}}', '{{1}}', '{{NULL}}', \
         '{{false}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', ARRAY[gen_random_uuid()], '{{NULL}}', '{{1}}', '{{NULL}}', \
         '{{NULL}}', '{{NULL}}', '{{{count}}}', '{{NULL}}', NULL, 'w', {}",
        messages(),
    );
    let by_client = format!(
        "{}, {}, {}, {}, {topics}, {payloads}, {none}, {}, {}",
        ids(count),
        ids(count),
        ids(count),
        ids(count),
        each("NULL::timestamptz"),
        each("NULL::timestamptz")
    );
    for (at, (statement, values)) in (1..).zip([
        ("settle_launch_one", of_one),
        ("settle_launch_many", of_many),
        ("message_insert_many", by_client),
    ]) {
        let plan = carried_out(&pool, statement, &values).await;
        assert_eq!(blocks_written_aside(&plan), 0, "{statement}: {plan:#}");
        let published = "SELECT count(*) FROM scoop.message WHERE length(payload::text) > 200000";
        let published: i64 = sqlx::query_scalar(published).fetch_one(&pool).await.unwrap();
        assert_eq!(published, at * 100, "{statement}");
    }
    done(pool).await;
}

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

#[test]
fn bad_plan_is_distinguished_from_a_good_one() {
    let plan = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let good = plan(
        "Update on run r\n  ->  Index Scan using run_pkey on run r  (cost)\n        Index Cond: (id = $1)",
    );
    assert_eq!(objection("settle_end_one", &good), None);
    let bad = plan(
        "Join\n  ->  Index Scan using run_pkey on run r  (cost)\n        Filter: x\n  ->  Tid Scan\n        TID Cond: y",
    );
    assert!(objection("settle_end_one", &bad).is_some_and(|text| text.contains("whole index")));
    let worse = plan("  ->  Seq Scan on handler  (cost)");
    assert!(objection("settle_end_one", &worse).is_some_and(|text| text.contains("whole table")));
}

/// Expired signals of one key, and one that is still kept.
const EXPIRED_SIGNALS: &str = "
    INSERT INTO scoop.signal (id, name, key, payload, sent_at, kept_until)
    SELECT gen_random_uuid(), 'paid', '7', '1', now() - interval '2 hours', now() - interval '1 hour' - n * interval '1 ms'
    FROM generate_series(1, 30000) n;
    INSERT INTO scoop.signal (id, name, key, payload, kept_until)
    VALUES (gen_random_uuid(), 'paid', '7', '2', now() + interval '1 hour')";

#[tokio::test]
async fn signals_whose_time_is_over_are_not_read_again() {
    const BLOCKS_MAX: i64 = 60;
    let pool = database("expired_signals").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute("ALTER TABLE scoop.signal SET (autovacuum_enabled = false)").await;
    execute(EXPIRED_SIGNALS).await;
    execute("VACUUM ANALYZE scoop.signal").await;
    let deliver = "'{paid}', '{7}', NULL, '{}', false, '20ms'";
    let send = "gen_random_uuid(), 'paid', '7', '3', 3600, gen_random_uuid(), '{}', '{}', '{}', 1, 0, NULL";
    for (statement, values) in [("signal_deliver", deliver), ("signal_send", send)] {
        let blocks = blocks_of(&pool, statement, values).await;
        assert!(blocks < BLOCKS_MAX, "{statement} read {blocks} blocks");
    }
    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    let expired = store.expire_signals(40_000).await.unwrap();
    let paid = SignalKey { name: "paid".into(), key: "7".into() };
    assert_eq!(expired, [ExpiredSignals { to: paid, signals: 30_000 }]);
    assert!(store.expire_signals(40_000).await.unwrap().is_empty());
    execute("VACUUM scoop.signal").await;
    let blocks = blocks_of(&pool, "signal_deliver", "'{}', '{}', '0', '{}', false, '20ms'").await;
    assert!(blocks < BLOCKS_MAX, "a look at all kept signals read {blocks} blocks");
    done(pool).await;
}

/// Sleeping runs of one saga, and three with greater ids that are due.
const SLEEPING_RUNS: &str = "
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, step, ready_at, epoch, suspensions, last_event_at)
    SELECT root, root, ARRAY[root], gen_random_uuid(), 'order', 'ship', 'pack',
           now() + CASE WHEN n > 30000 THEN interval '-1 min' ELSE n * interval '1 min' END, 1, 1, now()
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
    for (statement, values) in [("run_count_unfinished", "100, NULL"), ("run_page_stuck", "NULL, NULL, 50")] {
        let blocks = blocks_of(&pool, statement, values).await;
        assert!(blocks < BLOCKS_MAX, "{statement} read {blocks} blocks");
    }
    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    for (limit, sleeping) in [(Some(100), (100, true)), (None, (30_000, false))] {
        let limits = CountLimits { runs: limit, sagas: None };
        let counted = store.unfinished_counts(limits).await.unwrap();
        let counts: Vec<_> = counted.counts.iter().map(|it| (it.phase, (it.count, it.is_capped))).collect();
        assert_eq!(counts, [(RunPhase::Ready, (3, false)), (RunPhase::Sleeping, sleeping)]);
    }
    done(pool).await;
}

/// Waiting messages of one key, each half of them with limits. The time of one is over.
const WAITING_MEMBERS: &str = "
    INSERT INTO scoop.join_member (run, saga, key, topic, message_id, since, expires_at)
    SELECT md5('run' || n)::uuid, 'ship', '7', 'paid', gen_random_uuid(), now() - n * interval '1 s',
           CASE WHEN n = 10000 THEN now() - interval '1 s' WHEN n % 2 = 0 THEN now() + n * interval '1 min' END
    FROM generate_series(1, 20000) n";

#[tokio::test]
async fn overdue_member_is_looked_up_among_many_of_its_key() {
    const BLOCKS_MAX: i64 = 40;
    let pool = database("waiting_members").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute("ALTER TABLE scoop.join_member SET (autovacuum_enabled = false)").await;
    execute(WAITING_MEMBERS).await;
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE scoop.join_member").await;
        }
        let behind =
            "'{ship,ship}', '{paid,picked}', 20, now() + interval '10000 min', md5('run10000')::uuid";
        for (statement, values) in [
            ("join_overdue", "'ship', '7', '{paid,picked}', 1000, md5('run10000')::uuid"),
            ("join_oldest", "'ship', '7', '{paid,picked}', 1000"),
            ("join_next_due", "'{ship,ship}', '{paid,picked}', 20, '-infinity', md5('')::uuid"),
            ("join_next_due", behind),
        ] {
            let blocks = blocks_of(&pool, statement, values).await;
            assert!(blocks < BLOCKS_MAX, "{statement}: {blocks} blocks, analyzed: {looked_at}");
        }
    }
    done(pool).await;
}

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
    let failed =
        "UPDATE scoop.run SET state = 'stuck', owner = NULL, awaits_operator = true WHERE state = 'running'";
    execute(failed.into()).await;
    let last: Uuid = sqlx::query_scalar("SELECT md5('1000 run1000')::uuid").fetch_one(&pool).await.unwrap();
    let blocked = (RepairStatus::BlockedByDescendant, vec![RunId::from(last)]);
    assert_eq!(statuses().await, vec![blocked; 50]);
    done(pool).await;
}

/// The status looks for a run below that awaits an operator; a decision waits for those above that have not recorded a failure.
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
        for statement in 0..2 {
            let (few, many) = (costs[0][statement], costs[1][statement]);
            // The lineage of each run is as long as its hierarchy is deep.
            assert!(many < 3 * few, "{costs:?} blocks, analyzed: {looked_at}");
        }
    }
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

#[tokio::test]
async fn comparison_of_failed_rollbacks_reads_the_newest() {
    let pool = database("compared_failures").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let mut blocks = vec![];
    for (from, to, children) in [(1, 300, 400), (301, 20_000, 4_000)] {
        execute(SETTLED_FAILURES.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())).await;
        execute(FAILED_CHILDREN.replace("{of}", &children.to_string())).await;
        execute("VACUUM ANALYZE".into()).await;
        let plan = carried_out(&pool, "rollback_failure_compare", "100, 1000, 100").await;
        assert_eq!(plan["Actual Rows"].as_f64(), Some(1.0), "none differs");
        blocks.push(blocks_read(&plan));
    }
    assert!(blocks[1] < 2 * blocks[0], "{blocks:?} blocks among few and many");
    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    execute("DELETE FROM scoop.rollback_failure".into()).await;
    let compared = store.compare_failed_rollbacks().await.unwrap();
    assert_eq!(compared.different.len(), 100, "{} compared", compared.compared);
    assert!(compared.different.iter().all(crate::RunDifference::is_unlisted_failure));
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
