//! The part that the statements of claims have in common, in `sql/claim/`: which runs are taken differs, what becomes of them
//! does not.

use super::settle_parts::without_comments;

const TAKEN: &str = include_str!("../../../sql/claim/taken.sql");
const UNDER_KEY: &str = include_str!("../../../sql/claim/under_key.sql");

/// The statement with the common part in place of its name in braces.
pub(super) fn complete(text: &str) -> String {
    let taken = |counted: &str| without_comments(TAKEN).replace("{counted}", counted);
    if text.contains("{taken}") {
        text.replace("{taken}", &taken(""))
    } else if text.contains("{taken_under_key}") {
        let under_key = format!("\n{}", without_comments(UNDER_KEY));
        text.replace("{taken_under_key}", &taken(&under_key))
    } else {
        text.to_owned()
    }
}
