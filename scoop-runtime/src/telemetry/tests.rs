//! The guide lists exactly the events that are declared.

use std::collections::BTreeSet;

use super::metric_page::{MetricRow, metric_rows};
use super::metrics::ALL;
use super::page::{Row, rows};
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
