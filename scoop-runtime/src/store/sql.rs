//! The texts of all statements, made once for the schema in use.
//!
//! The files under `sql/` name the schema `scoop` in full. They run on connections and in
//! transactions that belong to the user, whose `search_path` is none of our business, so another
//! schema is written into the text, once, when the program starts: in quotes, so that any name will do that the
//! texts have room for.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::SetupError;

/// How the channel of a schema begins.
const CHANNEL_PREFIX: &str = "scoop:";

/// How long the name of a schema may be: PostgreSQL cuts names after 63 bytes, and that of the channel is longer.
const BYTES_MAX: usize = 63 - CHANNEL_PREFIX.len();

/// The name of a schema, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schema {
    name: String,
    /// As it is written in statements.
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

    /// The name as it is.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name as it is written in statements.
    pub(crate) fn quoted(&self) -> &str {
        &self.quoted
    }

    /// The text with this schema in place of `scoop`.
    pub(crate) fn qualify(&self, text: &str) -> SqlStr {
        let text = text.replace("scoop.", &format!("{}.", self.quoted));
        AssertSqlSafe(Arc::<str>::from(text)).into_sql_str()
    }
}

/// Declares one field for each statement, with its text from the file of the same name.
macro_rules! statements {
    ($($name:ident,)*) => {
        /// All statements, each named as its file.
        #[derive(Clone, Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: SqlStr,)*
            /// The channel on which processes wake each other.
            pub(crate) channel: String,
        }

        impl Statements {
            /// The texts for this schema.
            pub(crate) fn of(schema: &Schema) -> Self {
                Self {
                    $($name: schema.qualify(include_str!(concat!("../../sql/", stringify!($name), ".sql"))),)*
                    channel: format!("{CHANNEL_PREFIX}{}", schema.name()),
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
    cancel_drop,
    cancel_left,
    cancel_mark,
    cancel_record,
    definition_ids,
    definition_publish,
    definition_steps,
    handler_abandoned,
    handler_drop,
    handler_list,
    handler_publish,
    handler_ready,
    handler_retire,
    handler_waiting,
    message_launch,
    message_launch_one,
    message_of_root,
    message_publish,
    message_publish_one,
    message_standing,
    rebuild_clear,
    rebuild_events,
    rebuild_insert,
    rebuild_lock,
    rebuild_topology,
    rebuild_workers,
    redeliver,
    redeliver_find,
    redeliver_lock,
    repair_chance,
    repair_drop,
    repair_find,
    repair_list,
    repair_others,
    repair_record,
    repair_revive,
    repair_unrolled,
    repair_write,
    request_done,
    request_find,
    request_list,
    request_named,
    run_children,
    run_claim,
    run_counts,
    run_disown,
    run_due,
    run_free,
    run_give_up,
    run_history,
    run_held,
    run_hold,
    run_mark_stuck,
    run_outputs,
    run_overdue,
    run_release,
    run_ready,
    run_recorded,
    run_repeats,
    run_repetitions,
    run_retry_stuck,
    run_set_aside,
    run_settle,
    run_stops,
    run_stuck,
    run_sweep,
    run_tree,
    run_unreserve,
    run_values,
    run_wake,
    schedule_busy,
    schedule_move_on,
    schedule_publish,
    schedule_take,
    schedule_trigger,
    schedule_wait,
    step_end,
    step_launch,
    step_launch_one,
    step_settle,
    step_suspend,
    step_tell,
    step_unhandled,
    topology_change,
    topology_read,
    undo_begin,
    undo_check,
    undo_lock,
    worker_dead,
    worker_leave,
    worker_pause,
    worker_reap,
    worker_register,
    worker_share,
}
