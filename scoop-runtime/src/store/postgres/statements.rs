//! The texts of all statements, made once for the schema in use.
//!
//! The files under `sql/` name the schema `scoop` in full. Another schema is written into the text, once, when the
//! program starts: in quotes, so that any name will do that the texts have room for.
//!
//! Statements on connections of the engine find functions and operators in `pg_catalog` alone, see `pool.rs`. Some
//! also run in transactions of the user, which have a `search_path` of the user: these name the schema of every
//! function, operator and type. They avoid syntax that stands for an operator without a schema: `IN`, `BETWEEN`,
//! `USING`, `nullif`, `CASE x WHEN`, `IS DISTINCT FROM`; `unnest` of several lists stands for that of the server. And
//! since an operator with a schema has the same precedence as any other, each operand that is an expression has
//! parentheses.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::{settle_parts, shared_parts};
use crate::SetupError;

const CHANNEL_PREFIX: &str = "scoop:";

/// The longest name of a schema: PostgreSQL cuts names after 63 bytes, and that of the channel is longer.
const BYTES_MAX: usize = 63 - CHANNEL_PREFIX.len();

/// The name of a schema, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schema {
    name: String,
    quoted: String,
}

impl Schema {
    /// The name, if there can be a schema of that name, with a notification channel.
    pub(crate) fn new(name: &str) -> Result<Self, SetupError> {
        let why = if name.is_empty() {
            "it is empty".to_owned()
        } else if name.len() > BYTES_MAX {
            format!("it has {} bytes, and {BYTES_MAX} are possible", name.len())
        } else if name.contains(char::is_control) {
            "control characters, such as NUL or a line break, are not possible".to_owned()
        } else if let Some(taken) = name.chars().find(|c| ['\'', '$', '%'].contains(c)) {
            format!("the character {taken} is not possible, since the texts that make the tables use it")
        } else if name.starts_with("pg_") {
            "names that begin with `pg_` are those of PostgreSQL".to_owned()
        } else {
            let quoted = format!("\"{}\"", name.replace('"', "\"\""));
            return Ok(Self { name: name.to_owned(), quoted });
        };
        Err(SetupError::SchemaName { name: name.to_owned(), why })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn quoted(&self) -> &str {
        &self.quoted
    }

    /// The text with this schema in place of `scoop`.
    pub(crate) fn qualify(&self, text: &str) -> SqlStr {
        let text = text.replace("scoop.", &format!("{}.", self.quoted));
        AssertSqlSafe(Arc::<str>::from(text)).into_sql_str()
    }
}

/// The text of a statement: the file of its name, which may name a part of `sql/claim/`, `sql/ended/` or `sql/cancel/`; or parts
/// of `sql/settle/`.
macro_rules! text {
    ($name:ident) => {
        shared_parts::complete(include_str!(concat!("../../../sql/", stringify!($name), ".sql")))
    };
    ($name:ident = $($part:ident)*) => {
        settle_parts::compose(&[$(include_str!(concat!("../../../sql/settle/", stringify!($part), ".sql"))),*])
    };
}

macro_rules! statements {
    ($($name:ident $(= [$($part:ident),*])?,)*) => {
        #[derive(Clone, Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: SqlStr,)*
            /// The channel on which processes wake each other.
            pub(crate) channel: String,
            pub(super) schema: Schema,
        }

        impl Statements {
            pub(crate) fn new(schema: &Schema) -> Self {
                Self {
                    $($name: schema.qualify(&text!($name $(= $($part)*)?)),)*
                    channel: format!("{CHANNEL_PREFIX}{}", schema.name()),
                    schema: schema.clone(),
                }
            }

            /// Each with its name, for the test that prepares them all.
            #[cfg(test)]
            pub(crate) fn all(&self) -> Vec<(&'static str, SqlStr)> {
                vec![$((stringify!($name), self.$name.clone()),)*]
            }
        }
    };
}

statements! {
    archive_parts,
    archive_rows,
    cancellation_check,
    command_read_decision,
    definition_ids,
    definition_register,
    definition_steps,
    entity_events,
    entity_insert,
    entity_insert_in_step,
    entity_keys,
    entity_lock,
    entity_lock_free,
    entity_lock_in_step,
    entity_read,
    entity_write,
    entity_write_in_step,
    event_clock_lead,
    event_insert_cancellation,
    event_insert_operator,
    find_field_list,
    find_field_publish,
    found_by_copy,
    found_by_record,
    found_by_relaunched,
    handler_count_pending,
    handler_delete_pending,
    handler_list,
    handler_list_abandoned,
    handler_list_ready,
    handler_list_renamed,
    handler_own,
    handler_register,
    handler_retire,
    handler_retire_gone,
    hierarchy_is_unfinished,
    hierarchy_lock,
    hierarchy_relaunch,
    id_find_kind,
    intervention_insert,
    intervention_list,
    intervention_of_runs,
    join_find,
    join_lock,
    join_mark,
    join_next_due,
    join_oldest,
    join_overdue,
    join_record,
    join_mark_refused,
    join_withdraw,
    retention_publish,
    key_valid_until,
    launches_declare,
    launches_list,
    launches_record,
    limit_candidates,
    limit_claim,
    limit_delete,
    limit_follow,
    limit_forget,
    limit_forget_all,
    limit_insert,
    limit_list,
    limit_list_keys,
    limit_lock,
    limit_park,
    limit_record,
    limit_running,
    limit_unpark,
    limit_unpark_all,
    limit_unpark_orphaned,
    limit_wait_for_claims,
    message_ended,
    message_find_by_root,
    message_insert_any,
    message_insert_claiming,
    message_insert_many,
    message_insert_one,
    message_insert_one_claiming,
    message_status,
    message_store,
    pause_end,
    pause_end_expired,
    pause_progress,
    pause_set,
    pause_trim_ended,
    prune_deletable,
    prune_hierarchies,
    prune_page,
    prune_keys,
    prune_signals,
    queue_list,
    queue_list_topics,
    rate_delete,
    rate_delete_idle,
    rate_due,
    rate_next,
    rate_read,
    rate_rename,
    rate_write,
    redaction_publish,
    redeliver,
    redeliver_find,
    redeliver_lock,
    relaunch_list,
    request_find_target,
    request_is_recorded,
    request_list,
    retention_next,
    retention_put_off,
    retention_settle,
    role_lacks,
    role_writes,
    rollback_check,
    rollback_start,
    run_accept_failed,
    run_add_ballast,
    run_children,
    run_claim,
    run_count_left,
    run_count_parts,
    run_count_repetitions,
    run_decide_wait,
    run_delete_dropped,
    run_delete_pending,
    run_free,
    run_give_up_reasons,
    run_hand_over,
    run_history,
    run_is_claimed,
    run_is_reachable,
    run_is_recorded,
    run_left_children,
    run_list_giving_up,
    run_list_overdue,
    run_list_ready,
    run_lock_lineage,
    run_mark_cancelled,
    run_mark_overdue,
    run_mark_stuck,
    run_mark_unawaited,
    run_needs_rerun,
    run_next_due,
    run_read_repair,
    run_release,
    run_repair,
    run_retry_one_stuck,
    run_retry_stuck,
    run_stop_deadlines,
    run_tree,
    run_unreserve,
    run_values,
    run_waited_children,
    run_wake,
    run_wake_missed,
    schedule_advance,
    schedule_lock_due,
    schedule_next_due,
    schedule_register,
    schedule_trigger,
    settle_advance_many = [settlement_many, advance, end, advance_end_events, values, advance_result],
    settle_advance_one = [settlement_one, advance_one, one_result],
    settle_advance_value_one = [settlement_one, advance_one, values, one_result],
    settle_end_one = [settlement_one, end_one, one_result],
    settle_end_value_one = [settlement_one, end_one, values, one_result],
    settle_general,
    settle_launch_many = [settlement_many, lock, launch, values, wait, wait_result],
    settle_launch_one = [settlement_one, launch_one, launch_one_result],
    settle_launch_value_one = [settlement_one, launch_one, values, launch_one_result],
    settle_request_rollback_many = [settlement_many, lock, request_rollback, wait, wait_result],
    signal_awaited,
    signal_awaited_by,
    signal_deliver,
    signal_mark_expired,
    signal_horizon,
    signal_insert,
    signal_insert_any,
    signal_names,
    signal_refuse,
    signal_send,
    signal_types,
    signal_state,
    signal_waiting,
    step_begin,
    step_find_begun,
    step_unhandled,
    store_sizes,
    topology_change,
    topology_lock,
    topology_read,
    worker_acknowledge,
    worker_any_dead,
    worker_change_definitions,
    worker_delete,
    worker_list_unregistered,
    worker_reap,
    worker_register,
    worker_registration,
    worker_lock_shared,
    worker_wait_for_claims,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among_others(all: &Statements) -> Vec<(&'static str, &SqlStr)> {
        vec![
            ("entity_insert_in_step", &all.entity_insert_in_step),
            ("entity_lock_in_step", &all.entity_lock_in_step),
            ("entity_write_in_step", &all.entity_write_in_step),
            ("found_by_record", &all.found_by_record),
            ("message_insert_any", &all.message_insert_any),
            ("message_insert_many", &all.message_insert_many),
            ("message_insert_one", &all.message_insert_one),
            ("message_store", &all.message_store),
            ("settle_general", &all.settle_general),
            ("settle_end_one", &all.settle_end_one),
            ("settle_end_value_one", &all.settle_end_value_one),
            ("settle_launch_one", &all.settle_launch_one),
            ("settle_launch_value_one", &all.settle_launch_value_one),
            ("settle_advance_one", &all.settle_advance_one),
            ("settle_advance_value_one", &all.settle_advance_value_one),
            ("signal_insert", &all.signal_insert),
            ("signal_insert_any", &all.signal_insert_any),
            ("step_unhandled", &all.step_unhandled),
        ]
    }

    /// The text without comments, literals, qualified names, and the `=` of `SET`; in words and single characters.
    fn unqualified(text: &str) -> Vec<String> {
        let text: String =
            text.lines().map(|line| line.split("--").next().unwrap_or("").to_owned() + " ").collect();
        let outside: String = text.split('\'').step_by(2).collect();
        let mut words = vec![String::new()];
        for char in outside.chars() {
            let last = words.last_mut().expect("there is one");
            let is_word = |char: char| char.is_alphanumeric() || "_$.\"".contains(char);
            match is_word(char) && last.chars().all(is_word) {
                true => last.push(char),
                false if char.is_whitespace() => words.push(String::new()),
                false => words.push(char.to_string()),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    /// The words that a schema of the user could capture.
    fn captured(words: &[String]) -> Vec<String> {
        const KEYWORDS: [&str; 25] = [
            "coalesce",
            "greatest",
            "least",
            "OPERATOR",
            "AS",
            "OVER",
            "FROM",
            "AND",
            "OR",
            "NOT",
            "WHERE",
            "ANY",
            "EXISTS",
            "ARRAY",
            "VALUES",
            "CONFLICT",
            "SELECT",
            "MATERIALIZED",
            "THEN",
            "ON",
            "IN",
            "LATERAL",
            "JOIN",
            "RETURNING",
            "ROW",
        ];
        let at = |index: usize| words.get(index).map_or("", String::as_str);
        let mut found = vec![];
        let mut sets = false;
        let mut index = 0;
        while index < words.len() {
            let (before, word, next) = (at(index.wrapping_sub(1)), at(index), at(index + 1));
            match word {
                "SET" => sets = true,
                "FROM" | "WHERE" | "RETURNING" => sets = false,
                _ => {}
            }
            if word == "OPERATOR" && next == "(" && at(index + 2).starts_with("pg_catalog.") {
                index += words[index..].iter().position(|word| word == ")").expect("it is closed") + 1;
                continue;
            }
            let calls =
                next == "(" && word.starts_with(|char: char| char.is_alphabetic()) && !word.contains('.');
            // The name of a relation with a list of columns.
            let lists = before == "AS";
            let unnests =
                word == "unnest" && words[index..].iter().take_while(|it| *it != ")").any(|it| it == ",");
            let casts = before == ":" && !word.contains('.') && !["int", "varchar", ":"].contains(&word);
            let all = ["SELECT", "RETURNING", "("].contains(&before) || before.ends_with('.');
            let is_all = word == "*" && all;
            let is_operator = "<>+-*/|?~@#&^%!=".contains(word) && !is_all && !(word == "=" && sets);
            let stands_for_one = ["IN", "BETWEEN", "nullif", "LIKE"].contains(&word)
                // that of a join, not of DELETE
                || (word, next) == ("USING", "(")
                || (word, next) == ("DISTINCT", "FROM")
                || (word == "CASE" && next != "WHEN");
            if (calls && !lists && !unnests && !KEYWORDS.contains(&word))
                || casts
                || is_operator
                || stands_for_one
            {
                found.push(format!("{before} {word} {next}"));
            }
            index += 1;
        }
        found
    }

    #[test]
    fn statements_in_transactions_of_the_user_name_every_schema() {
        let all = Statements::new(&Schema::new("scoop").unwrap());
        for (name, text) in among_others(&all) {
            assert_eq!(captured(&unqualified(text.as_str())), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn names_without_a_schema_are_found() {
        for text in [
            "SELECT count(*) FROM scoop.run r",
            "SELECT r.id FROM scoop.run r WHERE r.root = $1",
            "SELECT r.lineage || $1 FROM scoop.run r",
            "SELECT $1::uuid",
            "SELECT 1 FROM scoop.run r WHERE r.id IN (SELECT $1)",
            "SELECT 1 FROM scoop.run a JOIN scoop.run b USING (id)",
            "SELECT CASE r.epoch WHEN 1 THEN 2 END FROM scoop.run r",
            "SELECT nullif(r.context, '{}') FROM scoop.run r",
            "UPDATE scoop.run r SET epoch = r.epoch + 1",
        ] {
            assert_ne!(captured(&unqualified(text)), Vec::<String>::new(), "{text}");
        }
        let qualified =
            "UPDATE scoop.run r SET epoch = r.epoch OPERATOR(pg_catalog.+) 1 RETURNING pg_catalog.now()";
        assert_eq!(captured(&unqualified(qualified)), Vec::<String>::new());
    }
}
