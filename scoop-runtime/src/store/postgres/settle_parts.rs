//! The parts that the statements of settlements are composed of: the files in `sql/settle/`.
//!
//! A part is one or more queries of a `WITH`, or the query behind them. The parts differ in what they do, such as the end
//! of a run; all that they share, such as the fence, is a *rule* of its own: a file that other parts name in braces.

/// The rules. The first line of each says what it is.
macro_rules! rules {
    ($($name:ident,)*) => {
        [$((concat!("{", stringify!($name), "}"), include_str!(concat!("../../../sql/settle/", stringify!($name), ".sql"))),)*]
    };
}

/// A rule comes before those that it names.
const RULES: [(&str, &str); 11] = rules![
    progress,
    suspended_event,
    ended_event,
    ended_run,
    event_columns,
    message_at,
    message_ready_at,
    message_context,
    fence,
    context,
    event_at,
];

/// The beginning of the statements for one run.
const ONE: &str = include_str!("../../../sql/settle/settlement_one.sql");

/// Where the settled runs and those that end are found with their settlements, by a statement for one run.
const OF_ONE: [(&str, &str); 2] = [
    ("{settled}", include_str!("../../../sql/settle/settled_one.sql")),
    ("{ended}", include_str!("../../../sql/settle/ended_one.sql")),
];

/// The same, by a statement for many runs.
const OF_MANY: [(&str, &str); 2] = [
    ("{settled}", include_str!("../../../sql/settle/settled_many.sql")),
    ("{ended}", include_str!("../../../sql/settle/ended_many.sql")),
];

/// The statement of these parts, of which the last is the query.
pub(super) fn compose(parts: &[&str]) -> String {
    let (query, with) = parts.split_last().expect("a statement has parts");
    let sources = if with.first() == Some(&ONE) { OF_ONE } else { OF_MANY };
    let with: Vec<_> = with.iter().map(|part| part.trim_end()).collect();
    let statement = format!("WITH\n{}\n{query}", with.join(",\n"));
    RULES
        .iter()
        .chain(&sources)
        .fold(statement, |text, (name, rule)| text.replace(name, without_comments(rule).trim_end()))
}

/// A rule stands within a line, which a comment would end.
pub fn without_comments(rule: &str) -> String {
    rule.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n")
}
