//! The guide lists exactly the events that are declared.

use std::collections::BTreeSet;

use super::page::{Row, rows};
use super::*;

fn declared() -> BTreeSet<Row> {
    let all = [OF_RUNS, OF_ROWS, OF_WORKERS, OF_PROGRAMS, OF_LAUNCHES, OF_SIGNALS, OF_RETENTION].concat();
    let rows = all.iter().map(|event| {
        let fields = event.fields.iter().filter(|field| !["event", "message"].contains(field));
        (event.target.into(), event.name.into(), event.level.into(), fields.map(|&it| it.into()).collect())
    });
    rows.collect()
}

#[test]
fn page_of_the_guide_lists_exactly_the_declared_events() {
    let declared = declared();
    // `scoop-embedded` checks its own.
    let described: BTreeSet<_> =
        rows().into_iter().filter(|(target, ..)| target != "scoop::embedded").collect();
    let missing: Vec<_> = declared.difference(&described).collect();
    let unknown: Vec<_> = described.difference(&declared).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not on the page: {missing:#?}\nonly there: {unknown:#?}"
    );
}
