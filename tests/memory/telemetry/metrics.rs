//! Metrics: each one that the guide lists is reported, with its labels and its unit.

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use super::*;

/// Metrics that need a database: `tests/it/behaviour/telemetry.rs`.
const NOT_REPORTED: [&str; 6] = [
    "scoop_connections",
    "scoop_connections_used",
    "scoop_queue_length",
    "scoop_queue_limit",
    "scoop_queue_seconds",
    "scoop_refused_launches_total",
];

/// The row of the guide for a reported metric, its labels and its value.
type ReportedMetric = (guide_metrics::MetricRow, Vec<(String, String)>, DebugValue);

fn reported(snapshotter: &Snapshotter) -> Vec<ReportedMetric> {
    let metrics = snapshotter.snapshot().into_vec().into_iter();
    let row = metrics.map(|(key, unit, _, value)| {
        let (kind, key) = key.into_parts();
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels = key.labels().map(|label| (label.key().to_owned(), label.value().to_owned()));
        let labels: Vec<_> = labels.collect();
        let names = labels.iter().map(|(name, _)| name.clone()).collect();
        let unit = unit.map(|unit| format!("{unit:?}")).unwrap_or_default();
        ((key.name().to_owned(), kind.to_owned(), unit, names), labels, value)
    });
    row.collect()
}

#[tokio::test(start_paused = true)]
async fn reported_metrics_are_those_of_the_guide() -> Result<()> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let (events, _guard) = Events::listen();
    outcomes().await?;
    faults(&events).await?;
    let reported: BTreeSet<_> = reported(&snapshotter).into_iter().map(|(row, ..)| row).collect();
    let listed = guide_metrics::metric_rows();
    let unlisted: Vec<_> = reported.difference(&listed).collect();
    assert!(unlisted.is_empty(), "not in the guide: {unlisted:#?}");
    let missing: Vec<_> = listed.difference(&reported).map(|(name, ..)| name).collect();
    assert_eq!(missing, NOT_REPORTED);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn more_than_a_thousand_failed_rollbacks_are_reported_as_a_thousand() -> Result<()> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let saga = OrderSaga::default();
    saga.broken.store(true, Ordering::Relaxed);
    let of_sagas = |it: Builder| it.only::<OrderSaga>().only::<ParcelSaga>().provide(saga.clone());
    let program = Program::start(&InMemory::new(), of_sagas).await?;
    let orders = (0..1_001).map(|_| Order { fails: true, ..Order::default() });
    for order in program.scoop.launch_all(orders).await? {
        assert!(matches!(order.ends().await?, Outcome::RollbackFailed(_)));
    }
    // Longer than the interval of the gauges.
    tokio::time::sleep(Duration::from_secs(61)).await;
    let rows = reported(&snapshotter);
    let gauge = rows.iter().find(|((name, ..), ..)| name == "scoop_failed_rollbacks");
    assert_eq!(gauge.map(|(.., value)| value), Some(&DebugValue::Gauge(1_000.0.into())));
    assert!(rows.iter().all(|((name, ..), ..)| name != "scoop_root_runs_total"), "none has ended: {rows:?}");
    program.scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failed_saga_counts_steps_failure_and_rollback() -> Result<()> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let shop = shop(&InMemory::new()).await?;
    let order = shop.scoop.launch(Order { retries: 1, fails: true, ..Order::default() }).await?;
    assert!(matches!(order.ends().await?, Outcome::RolledBack(_)));
    // The end is recorded before it is reported.
    shop.scoop.shutdown().await?;
    let rows = reported(&snapshotter);
    let counted = |name: &str, labels: &[&str]| {
        let of = |own: &[(String, String)]| own.iter().map(|(_, value)| &**value).eq(labels.iter().copied());
        let found = rows.iter().find(|((own, ..), own_labels, _)| own == name && of(own_labels));
        match found {
            Some((.., DebugValue::Counter(counted))) => usize::try_from(*counted).unwrap_or(usize::MAX),
            Some((.., DebugValue::Histogram(values))) => values.len(),
            _ => 0,
        }
    };
    let saga = "telemetry-order";
    assert_eq!(counted("scoop_launches_total", &["telemetry.orders"]), 1);
    assert_eq!(counted("scoop_retries_total", &[saga, "step"]), 1);
    assert_eq!(counted("scoop_failures_total", &[saga, "Error"]), 1);
    assert_eq!(counted("scoop_rollbacks_total", &[saga, "complete"]), 1);
    assert_eq!(counted("scoop_root_runs_total", &["rolled_back"]), 1);
    assert_eq!(counted("scoop_step_seconds", &[saga, "reserve", "step", "succeeded"]), 1);
    assert_eq!(counted("scoop_step_seconds", &[saga, "charge", "step", "failed"]), 2);
    assert_eq!(counted("scoop_step_seconds", &[saga, "reserve", "compensation", "succeeded"]), 1);
    assert_eq!(counted("scoop_events_total", &["scoop::run", "failed", "WARN"]), 1);
    Ok(())
}
