//! Metrics: each one that the guide lists is reported, with its labels and its unit.

use std::collections::BTreeMap;

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use super::*;

/// Metrics that need a database: `tests/it/behaviour/telemetry.rs`.
const NOT_REPORTED: [&str; 3] = ["scoop_connections", "scoop_connections_used", "scoop_queue_seconds"];

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

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "metered.jobs")]
struct Job;

#[derive(Default)]
struct Jobs;

#[saga(name = "metered-jobs", queue = 1)]
#[subscribes(Job)]
impl Jobs {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, _: &Job) -> Result<()> {
        Ok(())
    }
}

/// The same saga in a newer program, without a limit.
#[derive(Default)]
struct AnyJobs;

#[saga(name = "metered-jobs")]
#[subscribes(Job)]
impl AnyJobs {
    #[step]
    async fn work(&self, _: &mut Scope<'_>, _: &Job) -> Result<()> {
        Ok(())
    }
}

async fn refused_launch() -> Result<()> {
    let program = Program::start(&InMemory::new(), |it: Builder| it.only::<Jobs>()).await?;
    let refused = program.scoop.launch_all([Job, Job]).await;
    assert!(matches!(refused, Err(scoop::RuntimeError::QueueFull { .. })), "it was not refused");
    program.scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reported_metrics_are_those_of_the_guide() -> Result<()> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let (events, _guard) = Events::listen();
    outcomes().await?;
    faults(&events).await?;
    refused_launch().await?;
    let reported: BTreeSet<_> = reported(&snapshotter).into_iter().map(|(row, ..)| row).collect();
    let listed = guide_metrics::metric_rows();
    let unlisted: Vec<_> = reported.difference(&listed).collect();
    assert!(unlisted.is_empty(), "not in the guide: {unlisted:#?}");
    let missing: Vec<_> = listed.difference(&reported).map(|(name, ..)| name).collect();
    assert_eq!(missing, NOT_REPORTED);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn length_of_a_queue_is_reported_beside_its_limit_until_it_has_none() -> Result<()> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = ::metrics::set_default_local_recorder(&recorder);
    let database = InMemory::new();
    let Program { scoop, .. } = Program::start(&database, |it: Builder| it.only::<Jobs>()).await?;
    // Twice the interval of the gauges, by a clock that is not that of the machine. A look sets them to 0 until they are reported again.
    let interval_passes = async || tokio::time::sleep(Duration::from_secs(61)).await;
    let length_and_limit = || {
        let rows = reported(&snapshotter).into_iter();
        let own = rows.filter(|(_, labels, _)| labels.iter().any(|(_, saga)| saga == "metered-jobs"));
        let gauges = own.filter_map(|((name, ..), _, value)| match value {
            DebugValue::Gauge(value) => Some((name, value.into_inner().to_string())),
            _ => None,
        });
        gauges.collect::<BTreeMap<_, _>>().into_values().collect::<Vec<_>>().join(" of ")
    };
    interval_passes().await;
    assert_eq!(length_and_limit(), "0 of 1");
    scoop.pause(PauseTarget::Everything).await?;
    let job = scoop.launch(Job).await?;
    interval_passes().await;
    assert_eq!(length_and_limit(), "1 of 1");
    interval_passes().await;
    let newer = Program::start(&database, |it: Builder| it.only::<AnyJobs>()).await?;
    interval_passes().await;
    assert_eq!(length_and_limit(), "0 of 0", "they do not keep the last values");
    scoop.resume(PauseTarget::Everything).await?;
    assert_eq!(job.ends().await?, Outcome::Committed);
    newer.scoop.shutdown().await?;
    scoop.shutdown().await?;
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
