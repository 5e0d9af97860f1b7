//! The texts of all statements: each is the file of its name under `sql/`, which may name parts of `sql/ended/`,
//! `sql/unfinished/` and `sql/found/` in braces.

use scoop_runtime::internal::without_comments;

/// The parts that several statements have in common, by their names in braces.
const PARTS: [(&str, &str); 7] = [
    ("{ended_handlers}", include_str!("../sql/ended/handlers.sql")),
    ("{ended_shown}", include_str!("../sql/ended/shown.sql")),
    ("{ended_by}", include_str!("../sql/ended/by.sql")),
    ("{unfinished_shown}", include_str!("../sql/unfinished/shown.sql")),
    ("{found_shown}", include_str!("../sql/found/shown.sql")),
    ("{found_others}", include_str!("../sql/found/others.sql")),
    ("{found_newest}", include_str!("../sql/found/newest.sql")),
];

macro_rules! statements {
    ($($constant:ident = $file:literal,)*) => {
        $(pub(crate) const $constant: &str = include_str!(concat!("../sql/", $file, ".sql"));)*

        /// Each text with its name, for tests of plans.
        #[doc(hidden)]
        pub fn statements() -> Vec<(&'static str, String)> {
            vec![$(($file, complete($constant)),)*]
        }
    };
}

statements! {
    DEFINITION_LIST_CURRENT = "definition_list_current",
    ENTITY_LOCK = "entity_lock",
    ENTITY_NAMES = "entity_names",
    EVENT_ACTIVITY = "event_activity",
    EVENT_FOLLOW = "event_follow",
    EVENT_HORIZON = "event_horizon",
    EVENT_OLDEST_TRANSACTION = "event_oldest_transaction",
    FAILED_ROLLBACKS = "failed_rollbacks",
    FIND_FIELD_LIST = "find_field_list",
    FOUND_BY_ANY = "found_by_any",
    FOUND_BY_COPY = "found_by_copy",
    FOUND_BY_COUNTS = "found_by_counts",
    FOUND_BY_RELAUNCHED = "found_by_relaunched",
    HANDLER_COUNT_PENDING = "handler_count_pending",
    HANDLER_DELETE_PENDING = "handler_delete_pending",
    HANDLER_LIST_RETIRED = "handler_list_retired",
    HANDLER_RETIRE = "handler_retire",
    HIERARCHY_RELAUNCH = "hierarchy_relaunch",
    JOIN_EXPLAIN = "join_explain",
    JOIN_LIST = "join_list",
    KEY_FIND = "key_find",
    PAUSE_END = "pause_end",
    PAUSE_LIST = "pause_list",
    PAUSE_LIST_ENDED = "pause_list_ended",
    PAUSE_PROGRESS = "pause_progress",
    PAUSE_SET = "pause_set",
    PRUNE_HIERARCHIES = "prune_hierarchies",
    PRUNE_PAGE = "prune_page",
    REDACTION_LIST = "redaction_list",
    REDELIVER = "redeliver",
    REDELIVER_FIND = "redeliver_find",
    REDELIVER_LOCK = "redeliver_lock",
    RETENTION_UNDELETABLE = "retention_undeletable",
    RUN_CONTENTS = "run_contents",
    RUN_COUNT_FINISHED = "run_count_finished",
    RUN_COUNT_FOUND = "run_count_found",
    RUN_COUNT_LEFT = "run_count_left",
    RUN_COUNT_UNFINISHED = "run_count_unfinished",
    RUN_DURATIONS = "run_durations",
    RUN_EXPLAIN = "run_explain",
    RUN_EXPLAIN_BELOW = "run_explain_below",
    RUN_EXPLAIN_ENDED = "run_explain_ended",
    RUN_EXPLAIN_WORKERS = "run_explain_workers",
    RUN_FAILED_BELOW = "run_failed_below",
    RUN_FOUND_FINISHED = "run_found_finished",
    RUN_FOUND_UNFINISHED = "run_found_unfinished",
    RUN_PAGE_FINISHED = "run_page_finished",
    RUN_PAGE_FOUND = "run_page_found",
    RUN_PAGE_UNFINISHED = "run_page_unfinished",
    RUN_POSITIONS = "run_positions",
    SCHEDULE_LIST = "schedule_list",
    STUCK_RUNS = "stuck_runs",
    TOPIC_LIST = "topic_list",
    WORKER_LIST = "worker_list",
    WORKER_LIST_DEFINITIONS = "worker_list_definitions",
}

/// The text with the common parts in place of their names.
pub(crate) fn complete(text: &str) -> String {
    PARTS.iter().fold(text.to_owned(), |text, (name, part)| match text.contains(name) {
        true => text.replace(name, &without_comments(part)),
        false => text,
    })
}
