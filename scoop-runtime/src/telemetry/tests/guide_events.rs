//! Reads the events that the guide lists.

use std::collections::BTreeSet;

/// The page of the guide about logs, metrics and health.
pub(crate) const PAGE: &str = include_str!("../../../../docs/reference/telemetry.md");

/// Target, name, level and fields of an event. The fields `event` and `message` are left out, since every event has
/// them.
pub(crate) type Row = (String, String, String, BTreeSet<String>);

/// Parses the tables of the page: below the heading of a target, a row for each name and level. *run* is an
/// abbreviation that the page defines.
pub(crate) fn rows() -> BTreeSet<Row> {
    let (mut target, mut of_a_run, mut rows) = (String::new(), vec![], BTreeSet::new());
    for line in PAGE.lines() {
        if let Some(fields) = line.strip_prefix("*run* stands for ") {
            of_a_run = quoted(fields);
        } else if let Some(heading) = line.strip_prefix("## ") {
            target = quoted(heading).pop().unwrap_or_default();
        } else if let [_, name, level, fields, ..] = &line.split('|').collect::<Vec<_>>()[..]
            && let Some(name) = quoted(name).pop()
            && target.starts_with("scoop::")
        {
            let shared = if fields.contains("*run*") { of_a_run.clone() } else { vec![] };
            let fields = shared.into_iter().chain(quoted(fields)).collect();
            rows.insert((target.clone(), name, level.trim().to_owned(), fields));
        }
    }
    rows
}

pub(crate) fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
