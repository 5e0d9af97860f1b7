//! Reads the events that the guide lists.

use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../docs/telemetry.md");

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

/// Name, kind, unit and labels of a metric.
pub(crate) type MetricRow = (String, String, String, Vec<String>);

/// Parses the table of the metrics.
pub(crate) fn metric_rows() -> BTreeSet<MetricRow> {
    let row = |line: &str| match &line.split('|').map(str::trim).collect::<Vec<_>>()[..] {
        [_, name, kind, unit, labels, ..] if name.starts_with("`scoop_") => {
            let name = name.trim_matches('`').to_owned();
            Some((name, (*kind).to_owned(), (*unit).to_owned(), quoted(labels)))
        }
        _ => None,
    };
    PAGE.lines().filter_map(row).collect()
}

/// The texts between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
