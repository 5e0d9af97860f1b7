//! The texts of all statements, made once for the schema in use.
//!
//! The files under `sql/` name the schema `scoop` in full. They run on connections and in
//! transactions that belong to the user, whose `search_path` is none of our business, so another
//! schema is written into the text, once, when the program starts: a name that was checked to
//! consist of letters, digits and underscores.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::SetupError;

/// The name of a schema, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schema(String);

impl Schema {
    /// The name, if it needs no quotes and leaves room for the name of a notification channel.
    pub(crate) fn new(name: &str) -> Result<Self, SetupError> {
        let letter_first = name.starts_with(|c: char| c.is_ascii_lowercase());
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if letter_first && plain && name.len() <= 40 {
            Ok(Self(name.to_owned()))
        } else {
            Err(SetupError::SchemaName { name: name.to_owned() })
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The text with this schema in place of `scoop`.
    pub(crate) fn qualify(&self, text: &str) -> SqlStr {
        let text = text.replace("scoop.", &format!("{}.", self.0));
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
                    channel: format!("scoop:{}", schema.as_str()),
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
    request_find,
    run_children,
    run_claim,
    run_disown,
    run_due,
    run_free,
    run_give_up,
    run_history,
    run_hold,
    run_outputs,
    run_overdue,
    run_release,
    run_repeats,
    run_retry_stuck,
    run_set_aside,
    run_settle,
    run_stops,
    run_stuck,
    run_sweep,
    run_tree,
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
    undo_begin,
    undo_check,
    undo_lock,
    worker_dead,
    worker_leave,
    worker_pause,
    worker_reap,
    worker_register,
}
