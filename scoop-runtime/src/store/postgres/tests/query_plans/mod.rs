//! The plans of frequent statements, independent of the tables' contents and the server's statistics: each finds its
//! rows by an index, and reads no more than these.

mod claims;
mod failed_rollbacks;
mod followers;
mod found;
mod histories;
mod lists;
mod payloads;
mod retention;
mod signals;
mod trees;

use std::time::SystemTime;

use scoop_core::SignalKey;
use sqlx::{AssertSqlSafe, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::super::pool::SESSION;
use super::super::{ConnectionSettings, PostgresStore, Schema, Sessions, Statements, migrate};
use super::{database, done};
use crate::model::signal::ExpiredSignals;
use crate::store::{RepairStorage as _, RequestStorage as _, SignalStorage as _, StatusStorage as _};
use crate::tree::{RunRow, TreeBounds};

/// The statements of each step, claim, launch, lookup or second, and of each cancelled run; those that list, show and
/// explain runs; and those of rollbacks and redeliveries.
const HOT: [&str; 110] = [
    "run_count_left",
    "run_retry_stuck",
    "run_claim",
    "limit_lock",
    "limit_follow",
    "limit_running",
    "limit_record",
    "limit_forget",
    "limit_candidates",
    "limit_claim",
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
    "settle_advance_value_one",
    "settle_end_one",
    "settle_end_value_one",
    "settle_launch_many",
    "settle_launch_one",
    "settle_launch_value_one",
    "settle_request_rollback_many",
    "settle_advance_many",
    "settle_general",
    "run_wake",
    "run_next_due",
    "store_sizes",
    "handler_list_ready",
    "run_mark_overdue",
    "run_list_overdue",
    "run_give_up_reasons",
    "run_stop_deadlines",
    "run_children",
    "run_history",
    "run_count_repetitions",
    "run_values",
    "run_waited_children",
    "run_left_children",
    "run_mark_cancelled",
    "run_delete_pending",
    "cancellation_check",
    "message_insert_many",
    "message_insert_one",
    "message_insert_one_claiming",
    "message_status",
    "message_ended",
    "key_valid_until",
    "signal_awaited",
    "signal_deliver",
    "signal_mark_expired",
    "signal_send",
    "join_oldest",
    "join_next_due",
    "join_overdue",
    "join_mark",
    "join_explain",
    "join_record",
    "join_mark_refused",
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
    "archive_parts",
    "archive_rows",
    "retention_publish",
    "run_page_unfinished",
    "run_page_finished",
    "run_page_found",
    "run_found_unfinished",
    "run_found_finished",
    "run_count_found",
    "found_by_counts",
    "key_find",
    "run_count_finished",
    "run_count_unfinished",
    "run_positions",
    "failed_rollbacks",
    "event_insert_operator",
    "run_contents",
    "run_durations",
    "event_activity",
    "entity_names",
    "run_explain",
    "run_explain_below",
    "run_explain_ended",
    "run_failed_below",
    "run_read_repair",
    "run_lock_lineage",
    "run_repair",
    "run_accept_failed",
    "run_is_reachable",
    "event_follow",
    "run_tree",
    "request_list",
    "intervention_of_runs",
    "relaunch_list",
    "rollback_check",
    "redeliver_find",
    "redeliver",
];

/// Statements that go through the index of ready runs or of a list from one handler to the next, or through that of
/// deadlines from the earliest on, and stop.
const WALKS: [&str; 14] = [
    "run_count_left",
    "limit_unpark_orphaned",
    "run_next_due",
    "handler_list_ready",
    "run_mark_overdue",
    "run_list_overdue",
    "run_page_unfinished",
    "run_page_finished",
    "run_count_finished",
    "run_count_unfinished",
    "run_durations",
    "entity_names",
    "run_explain",
    "run_explain_below",
];

const TABLES: [&str; 14] = [
    "on run",
    "on ended_run",
    "on message",
    "on message_event",
    "on return_value",
    "on join_member",
    "on signal",
    "on execution",
    "on entity",
    "on entity_event",
    "on kept_hierarchy",
    "on intervention",
    "on relaunch",
    "on found_by",
];

/// Statements in transactions of the user. The settings of those sessions are not ours.
const AMONG_THE_USERS: [&str; 10] = [
    "settle_advance_one",
    "settle_advance_value_one",
    "settle_end_one",
    "settle_end_value_one",
    "settle_launch_one",
    "settle_launch_value_one",
    "message_insert_one",
    "entity_lock_in_step",
    "entity_insert_in_step",
    "entity_write_in_step",
];

/// The text of a statement of this crate, or of that for operators.
fn text_of(statement: &str) -> String {
    let engine = Statements::new(&Schema::new("scoop").unwrap()).all();
    let engine = engine.into_iter().map(|(name, text)| (name, text.as_str().to_owned()));
    let mut all = engine.chain(scoop_operate::statements());
    all.find(|(name, _)| *name == statement).unwrap().1
}

fn prepared(statement: &str) -> (String, &'static str) {
    let text = text_of(statement);
    let (types, values) = match statement {
        "run_claim" => (
            "uuid, text, text[], text[], bigint, jsonb, uuid[], timestamptz[], int[], bigint, uuid[], timestamptz[], \
             timestamptz[], text[], timestamptz[], boolean[]",
            "gen_random_uuid(), '', '{}', '{}', 1, '{}', '{}', '{}', '{}', 0, NULL, '{}', '{}', '{}', '{}', '{}'",
        ),
        "settle_general" => ("jsonb, text, text", "'[]', '', NULL"),
        "run_wake" => (
            "jsonb, uuid, text[], text[], bigint, text[], text, uuid[], int[], int[], bigint",
            "'[]', gen_random_uuid(), '{}', '{}', 1, '{}', '', '{}', '{}', '{}', 0",
        ),
        "run_next_due" => {
            let types = "text[], text[], uuid, int[], boolean, timestamptz[], timestamptz[], timestamptz[], text[], timestamptz[], boolean[]";
            (types, "'{}', '{}', gen_random_uuid(), '{}', true, '{}', '{}', '{}', '{}', '{}', '{}'")
        }
        "handler_list_ready" => (
            "text[], text[], int[], timestamptz[], timestamptz[], timestamptz[], text[], timestamptz[], boolean[]",
            "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'",
        ),
        "run_count_left" => ("text, text, bigint", "'handler', 'many', 1000"),
        "handler_list_abandoned" => ("bigint", "100"),
        "relaunch_list" => ("uuid", "gen_random_uuid()"),
        "run_retry_stuck" => ("text[], int", "'{}', 12"),
        "run_mark_overdue" | "run_list_overdue" => ("bigint", "1"),
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
        "run_values" => ("uuid, text, text[], text[], text[]", "gen_random_uuid(), '', '{}', '{}', '{}'"),
        "run_waited_children" => ("uuid, uuid, uuid[]", "gen_random_uuid(), gen_random_uuid(), '{}'"),
        "run_left_children" => ("uuid, uuid[]", "gen_random_uuid(), '{}'"),
        "run_stop_deadlines" => ("uuid[], uuid[], bigint[]", "'{}', '{}', '{}'"),
        "settle_advance_one" | "settle_advance_value_one" => (
            "uuid, uuid, bigint, text, int, int, int, int, jsonb, bool, jsonb, text, jsonb, uuid, text, \
             int, jsonb, text, uuid, int, jsonb, text, text",
            "gen_random_uuid(), gen_random_uuid(), 1, '', 1, 0, NULL, 1, NULL, false, NULL, NULL, NULL, \
             NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL, ''",
        ),
        "settle_end_one" | "settle_end_value_one" => (
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
        "settle_launch_one" | "settle_launch_value_one" => (
            "uuid, uuid, bigint, text, int, int, int, int, jsonb, bool, jsonb, text, jsonb, uuid, text, \
             int, jsonb, text, uuid, int, jsonb, text, text, bigint[], int[], uuid[], uuid[], text[], \
             jsonb[], jsonb[], uuid[]",
            "gen_random_uuid(), gen_random_uuid(), 1, '', 1, 0, NULL, 1, NULL, false, NULL, NULL, NULL, \
             NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL, '', '{1}', '{1}', \
             ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], '{a}', ARRAY['{}'::jsonb], ARRAY[NULL::jsonb], \
             ARRAY[gen_random_uuid()]",
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
        "limit_follow" => ("text, bigint, uuid[], uuid[], text[], boolean", "'', 1, '{}', '{}', '{}', true"),
        "limit_running" => ("text, text[], boolean", "'', '{}', true"),
        "limit_record" => {
            let types = "text, bigint, uuid[], uuid[], text[], timestamptz[], timestamptz[]";
            (types, "'', 1, '{}', '{}', '{}', '{}', '{}'")
        }
        "limit_forget" => ("text, bigint, bigint", "'', 1, 2"),
        "limit_candidates" => {
            let types = "text[], text[], int[], bigint, uuid[], bigint, timestamptz[], timestamptz[], timestamptz[], text[], timestamptz[], boolean[]";
            (types, "'{}', '{}', '{}', 1, NULL, 1000000, '{}', '{}', '{}', '{}', '{}', '{}'")
        }
        "limit_claim" => (
            "uuid, text, uuid[], uuid[], bigint, text[], uuid[]",
            "gen_random_uuid(), '', '{}', '{}', 1, '{}', '{}'",
        ),
        "limit_list_keys" => {
            ("text[], text[], int[], text, bigint, text, bigint", "'{}', '{}', '{}', '', 1001, '', 0")
        }
        "limit_park" => ("uuid[], uuid[], text[]", "'{}', '{}', '{}'"),
        "limit_unpark" => (
            "text[], text[], int[], text[], bigint[], timestamptz[], boolean[]",
            "'{}', '{}', '{}', '{}', '{}', '{}', '{}'",
        ),
        "limit_unpark_orphaned" => ("bigint", "1000"),
        "rate_read" => ("text, text[]", "'', '{}'"),
        "rate_write" => {
            ("text, text[], jsonb[], boolean[], bigint[], bigint[]", "'', '{}', '{}', '{}', '{}', '{}'")
        }
        "rate_due" | "rate_delete_idle" => ("text, bigint", "'', 1"),
        "rate_next" => ("text", "''"),
        "join_mark" => ("uuid[], uuid", "'{}', NULL"),
        "join_explain" | "key_valid_until" => ("uuid", "NULL"),
        "join_mark_refused" => ("uuid[], text", "'{}', ''"),
        "signal_deliver" => {
            ("text[], text[], text, uuid[], boolean, text", "'{}', '{}', NULL, '{}', false, '20ms'")
        }
        "signal_awaited" => ("text", "'0'"),
        "signal_mark_expired" => ("bigint", "1"),
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
        "prune_page" => ("uuid, float8, bigint", "gen_random_uuid(), 1, 1000"),
        "retention_publish" => {
            ("text[], text[], float8[], float8[], float8[], boolean", "'{}', '{}', '{}', '{}', '{}', true")
        }
        "retention_next" => ("uuid, float8, float8, bigint, boolean", "gen_random_uuid(), 1, 1, 100, true"),
        "retention_settle" => (
            "uuid, float8, float8, uuid[], uuid[], boolean, float8",
            "gen_random_uuid(), 1, 1, '{}', '{}', true, 1",
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
            "NULL, NULL, '{committed}', NULL, NULL, NULL, NULL, NULL, NULL, 51, 102",
        ),
        "run_count_finished" => ("timestamptz, bigint, bigint", "now(), 1, NULL"),
        "run_count_unfinished" => ("bigint, bigint", "100, NULL"),
        "run_positions" => ("text[], bigint", "'{ship}', 100"),
        "failed_rollbacks" => ("timestamptz, uuid, bigint, bigint, bigint", "NULL, NULL, 50, 10, 100"),
        "stuck_runs" => ("timestamptz, uuid, bigint", "NULL, NULL, 50"),
        "event_insert_operator" => ("jsonb, text, timestamptz, uuid", "'[]', '', now(), gen_random_uuid()"),
        "run_explain" => ("uuid, uuid, bigint, bigint", "gen_random_uuid(), gen_random_uuid(), 1, 1"),
        "run_explain_below" => ("uuid, uuid, bigint", "gen_random_uuid(), gen_random_uuid(), 1"),
        "run_contents" => (
            "uuid[], uuid[], text[], bigint, int",
            "ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], '{a}', 51, 65536",
        ),
        "run_durations" => ("timestamptz, bigint, bigint, bigint", "now(), 200, 5000, 1000"),
        "event_activity" => ("uuid[], uuid[], bigint", "'{}', '{}', 500"),
        "entity_names" => ("bigint", "1000"),
        "intervention_list" => ("uuid", "gen_random_uuid()"),
        "run_explain_ended" => ("uuid, uuid", "gen_random_uuid(), gen_random_uuid()"),
        "run_failed_below" => ("uuid, uuid, bigint, bigint", "gen_random_uuid(), gen_random_uuid(), 11, 500"),
        "run_read_repair" => (
            "uuid, uuid[], uuid, text",
            "gen_random_uuid(), ARRAY[gen_random_uuid(), gen_random_uuid()], gen_random_uuid(), 'operator'",
        ),
        "run_lock_lineage" => ("uuid, uuid[]", "gen_random_uuid(), ARRAY[gen_random_uuid()]"),
        "run_repair" => ("uuid, jsonb, timestamptz, uuid", "gen_random_uuid(), '[]', now(), NULL"),
        "run_accept_failed" => ("uuid, uuid", "gen_random_uuid(), gen_random_uuid()"),
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
        "run_page_found" => (
            "text, jsonb[], timestamptz, uuid, bigint, uuid, bigint, boolean, boolean",
            "'order', '{7}', NULL, NULL, 100, NULL, 100, true, true",
        ),
        "run_found_unfinished" => (
            "uuid[], uuid[], text, text, text[], jsonb, timestamptz, timestamptz, text, text[], int",
            "'{}', '{}', NULL, NULL, NULL, '[]', NULL, NULL, NULL, NULL, NULL",
        ),
        "run_found_finished" => (
            "uuid[], uuid[], text, text, text[], jsonb, timestamptz, timestamptz, text, int",
            "'{}', '{}', NULL, NULL, '{}', '[]', NULL, NULL, NULL, NULL",
        ),
        "run_count_found" => (
            "text, jsonb[], timestamptz, uuid, bigint, jsonb, bigint, timestamptz",
            "'order', '{7}', NULL, NULL, 10000, '[]', 10000, now()",
        ),
        "found_by_counts" => ("jsonb, bigint", "'[]', 1000"),
        "key_find" => ("uuid[]", "'{}'"),
        "message_status" => ("uuid, uuid", "gen_random_uuid(), gen_random_uuid()"),
        "message_ended" => (
            "uuid[], uuid[], text[]",
            "ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], ARRAY['Decision']",
        ),
        "run_mark_cancelled" | "run_delete_pending" => ("uuid, uuid", "gen_random_uuid(), gen_random_uuid()"),
        "cancellation_check" => {
            ("uuid, uuid, uuid", "gen_random_uuid(), gen_random_uuid(), gen_random_uuid()")
        }
        _ => ("jsonb", "'[]'"),
    };
    (format!("PREPARE p ({types}) AS {}", text), values)
}

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

/// So many queues, each with a due run.
const QUEUES: &str = "
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, ready_at, last_event_at)
    SELECT id, id, ARRAY[id, id], id, '{name}' || n, '{name}' || n, now() - interval '1 minute', now()
    FROM generate_series(0, {count} - 1) n CROSS JOIN LATERAL (SELECT md5('{name}' || n)::uuid AS id) ids";

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

fn blocks_read(plan: &serde_json::Value) -> i64 {
    let blocks = |key: &str| plan[key].as_i64().unwrap();
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

async fn blocks_of(pool: &PgPool, statement: &str, values: &str) -> i64 {
    blocks_read(&carried_out(pool, statement, values).await)
}

/// The parameters of `run_tree` after the message, for all of it.
const WHOLE_TREE: &str = "NULL, NULL, NULL, NULL, 10000, NULL, NULL, NULL, 4194304";

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
