//! Reads the metrics that the guide lists.

use std::collections::BTreeSet;

use super::guide_events::{PAGE, quoted};

pub(crate) type MetricRow = (String, String, String, Vec<String>);

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
