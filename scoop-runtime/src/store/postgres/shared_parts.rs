//! The parts that several statements have in common: those of claims in `sql/claim/`, where only the runs that are taken differ, the
//! queues of a worker there that are worth a look,
//! the sagas with ended runs and what is shown of these in `sql/ended/`, and the runs that a cancellation is about in `sql/cancel/`.

use super::settle_parts::without_comments;

const TAKEN: &str = include_str!("../../../sql/claim/taken.sql");
const NEAR_QUEUES: &str = include_str!("../../../sql/claim/near_queues.sql");
const UNDER_KEY: &str = include_str!("../../../sql/claim/under_key.sql");
const ENDED_HANDLERS: &str = include_str!("../../../sql/ended/handlers.sql");
const ENDED_SHOWN: &str = include_str!("../../../sql/ended/shown.sql");
const ENDED_BY: &str = include_str!("../../../sql/ended/by.sql");
const CANCELLED_RUNS: &str = include_str!("../../../sql/cancel/runs.sql");

/// The statement with the common parts in place of their names in braces.
pub(super) fn complete(text: &str) -> String {
    let taken = |counted: &str| without_comments(TAKEN).replace("{counted}", counted);
    if text.contains("{taken}") {
        text.replace("{taken}", &taken(""))
    } else if text.contains("{taken_under_key}") {
        let under_key = format!("\n{}", without_comments(UNDER_KEY));
        text.replace("{taken_under_key}", &taken(&under_key))
    } else if text.contains("{near_queues}") {
        text.replace("{near_queues}", &without_comments(NEAR_QUEUES))
    } else if text.contains("{cancelled_runs}") {
        text.replace("{cancelled_runs}", &without_comments(CANCELLED_RUNS))
    } else {
        text.replace("{ended_handlers}", &without_comments(ENDED_HANDLERS))
            .replace("{ended_shown}", &without_comments(ENDED_SHOWN))
            .replace("{ended_by}", &without_comments(ENDED_BY))
    }
}
