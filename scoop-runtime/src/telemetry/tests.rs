//! The page of the guide and the events are the same list.

use std::collections::BTreeSet;

use super::*;

const PAGE: &str = include_str!("../../../docs/telemetry.md");

/// Target, name, level and fields.
type Row = (String, String, String, BTreeSet<String>);

/// All events, but `event` and `message`, which each of them has.
fn declared() -> BTreeSet<Row> {
    let all = [OF_RUNS, OF_ROWS, OF_WORKERS, OF_PROGRAMS, OF_EMBEDDED].concat();
    let rows = all.iter().map(|event| {
        let fields = event.fields.iter().filter(|field| !["event", "message"].contains(field));
        (event.target.into(), event.name.into(), event.level.into(), fields.map(|&it| it.into()).collect())
    });
    rows.collect()
}

/// The tables of the page: below the heading of a target a row for each name and level. *run* stands for the fields
/// that the page says it stands for.
fn described() -> BTreeSet<Row> {
    let (mut target, mut of_a_run, mut rows) = (String::new(), vec![], BTreeSet::new());
    for line in PAGE.lines() {
        let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
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

#[test]
fn page_of_the_guide_lists_exactly_the_declared_events() {
    let (declared, described) = (declared(), described());
    let missing: Vec<_> = declared.difference(&described).collect();
    let unknown: Vec<_> = described.difference(&declared).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "not on the page: {missing:#?}\nonly there: {unknown:#?}");
}
