//! The parts that several statements have in common: those of claims in `sql/claim/`, where only the runs that are
//! taken differ, with what is read of these, the queues of a worker there that are worth a look, the sagas with ended
//! runs and what is shown of these in `sql/ended/`, what is shown of the others in `sql/unfinished/`, and the runs
//! that a cancellation is about in `sql/cancel/`.

use super::settle_parts::without_comments;

const TAKEN: &str = include_str!("../../../sql/claim/taken.sql");
/// What a claim without a key writes in place of [`UNDER_KEY`].
const BEGUN: &str = "        began_at = coalesce(r.began_at, clock_timestamp()),";
const NEAR_QUEUES: &str = include_str!("../../../sql/claim/near_queues.sql");
const UNDER_KEY: &str = include_str!("../../../sql/claim/under_key.sql");
const CANCELLED_RUNS: &str = include_str!("../../../sql/cancel/runs.sql");
const CLAIMED_RUN: &str = include_str!("../../../sql/claim/claimed_run.sql");

/// The statement with the common parts in place of their names in braces. A part may have others in it.
pub(super) fn complete(text: &str) -> String {
    let taken = |counted: &str| without_comments(TAKEN).replace("{counted}", counted);
    let parts: [(&str, &dyn Fn() -> String); 5] = [
        ("{taken}", &|| taken(&format!("\n{BEGUN}"))),
        ("{taken_under_key}", &|| taken(&format!("\n{}", without_comments(UNDER_KEY)))),
        ("{claimed_run}", &|| without_comments(CLAIMED_RUN)),
        ("{near_queues}", &|| without_comments(NEAR_QUEUES)),
        ("{cancelled_runs}", &|| without_comments(CANCELLED_RUNS)),
    ];
    parts.iter().fold(text.to_owned(), |text, (name, part)| match text.contains(name) {
        true => text.replace(name, &part()),
        false => text,
    })
}
