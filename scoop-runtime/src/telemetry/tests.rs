//! The guide lists exactly the events, operations and metrics of the code.

mod guide_events;
mod guide_metrics;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use self::guide_events::{PAGE, Row, quoted, rows};
use self::guide_metrics::{MetricRow, metric_rows};
use super::metrics::ALL;
use super::*;

fn declared() -> BTreeSet<Row> {
    let all = [OF_RUNS, OF_ROWS, OF_WORKERS, OF_PROGRAMS, OF_LAUNCHES, OF_SIGNALS, OF_PAUSES, OF_RETENTION]
        .concat();
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

/// The operations that the source files in a folder report by this function.
fn reported_in(folder: &Path, function: &str) -> BTreeSet<String> {
    let mut reported = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            reported.append(&mut reported_in(&path, function));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for call in text.split(&format!("telemetry::{function}(")).skip(1) {
            let arguments = call.split(';').next().unwrap_or_default();
            let operation = arguments.split('"').nth(1);
            reported.insert(operation.unwrap_or_else(|| panic!("{path:?} names no operation")).to_owned());
        }
    }
    reported
}

#[test]
fn page_of_the_guide_lists_exactly_the_reported_operations() {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine");
    for event in ["operation_failed", "operation_abandoned"] {
        let reported = reported_in(&engine, event);
        assert!(reported.contains("settlement"), "{reported:?}");
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{event}` |"))).unwrap();
        let described: BTreeSet<_> = quoted(row.split('|').nth(4).unwrap()).into_iter().collect();
        assert_eq!(described, reported, "{event}");
    }
}

#[test]
fn page_of_the_guide_lists_exactly_the_declared_metrics() {
    let declared = ALL.iter().map(|metric| {
        let labels = metric.labels.iter().map(|&label| label.to_owned()).collect();
        (metric.name.to_owned(), metric.kind.to_owned(), metric.unit.to_owned(), labels)
    });
    let declared: BTreeSet<MetricRow> = declared.collect();
    let described = metric_rows();
    let missing: Vec<_> = declared.difference(&described).collect();
    let unknown: Vec<_> = described.difference(&declared).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not on the page: {missing:#?}\nonly there: {unknown:#?}"
    );
}

/// The names in a file that look like those of metrics, without the suffixes that Prometheus adds to a histogram.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = text.split(|c| !is_name(c)).filter(|name| name.starts_with("scoop_"));
    let suffixes = ["_bucket", "_count", "_sum"];
    names.map(|name| suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)).collect()
}

#[test]
fn dashboard_and_alerts_name_declared_metrics() {
    let names: BTreeSet<_> = ALL.iter().map(|metric| metric.name).collect();
    let dashboard = include_str!("../../../docs/telemetry/grafana.json");
    serde_json::from_str::<serde_json::Value>(dashboard).expect("the dashboard is JSON");
    let on_dashboard = metrics_in(dashboard);
    assert_eq!(on_dashboard, names, "the dashboard shows every metric, and no other");
    let in_alerts = metrics_in(include_str!("../../../docs/telemetry/alerts.yaml"));
    assert!(!in_alerts.is_empty());
    let unknown: Vec<_> = in_alerts.difference(&names).collect();
    assert!(unknown.is_empty(), "no metrics: {unknown:?}");
}
