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

/// A rule that names another one stands before it.
const RULES: [(&str, &str); 8] =
    rules![progress, suspended_event, ended_event, event_columns, message_times, fence, context, event_at,];

/// The statement of these parts, of which the last is the query.
pub(super) fn compose(parts: &[&str]) -> String {
    let (query, with) = parts.split_last().expect("a statement has parts");
    let with: Vec<_> = with.iter().map(|part| part.trim_end()).collect();
    let statement = format!("WITH\n{}\n{query}", with.join(",\n"));
    RULES.iter().fold(statement, |text, (name, rule)| text.replace(name, without_comments(rule).trim_end()))
}

/// A rule stands within a line, which a comment would end.
pub(super) fn without_comments(rule: &str) -> String {
    rule.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n")
}
