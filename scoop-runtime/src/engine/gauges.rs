//! Reports the gauges of the process and of the database at intervals: the feature `metrics`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::shared::Engine;
use crate::store::{QueueLength, StepTransactions, StoreSizes};
use crate::telemetry::{self, metrics};

const INTERVAL: Duration = Duration::from_secs(5);

const SIZES_EVERY: u32 = 6;

pub(super) async fn serve(engine: Arc<Engine>) {
    let mut limited = BTreeSet::new();
    for round in 0_u32.. {
        report(&engine);
        if round.is_multiple_of(SIZES_EVERY) {
            match read_sizes(&engine).await {
                Ok((sizes, queues)) => {
                    report_sizes(sizes);
                    report_queues(queues, &mut limited);
                }
                Err(error) => telemetry::operation_failed(engine.worker, "size lookup", &error),
            }
        }
        tokio::select! {
            biased;
            () = engine.stopping.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

async fn read_sizes(engine: &Engine) -> sqlx::Result<(StoreSizes, Vec<QueueLength>)> {
    Ok((engine.store.sizes().await?, engine.store.queue_lengths(None).await?))
}

fn gauge(number: impl TryInto<i64>) -> f64 {
    number.try_into().unwrap_or(i64::MAX) as f64
}

fn report(engine: &Engine) {
    let slots = engine.settings.concurrency;
    metrics::slots(gauge(slots));
    metrics::slots_used(gauge(engine.running_counts.snapshot().values().sum::<usize>()));
    metrics::lag_seconds(engine.lag().as_secs_f64());
    let of_steps = engine.step_transactions.as_ref().map(StepTransactions::open_connections);
    for (pool, open, idle) in engine.store.connections().into_iter().chain(of_steps) {
        metrics::connections(pool, gauge(open));
        metrics::connections_used(pool, gauge(open.saturating_sub(idle)));
    }
}

fn report_sizes(sizes: StoreSizes) {
    let StoreSizes {
        unfinished_runs,
        stuck_runs,
        failed_rollbacks,
        unbounded_waits,
        undeletable,
        working_set_bytes,
        record_bytes,
    } = sizes;
    metrics::unfinished_runs(gauge(unfinished_runs));
    metrics::stuck_runs(gauge(stuck_runs));
    metrics::failed_rollbacks(gauge(failed_rollbacks));
    metrics::unbounded_waits(gauge(unbounded_waits));
    metrics::undeletable_hierarchies(gauge(undeletable));
    metrics::working_set_bytes(gauge(working_set_bytes));
    metrics::record_bytes(gauge(record_bytes));
}

/// Reports the queues with a limit, and that those of the other sagas in `limited` have none any more.
fn report_queues(queues: Vec<QueueLength>, limited: &mut BTreeSet<String>) {
    let former = std::mem::take(limited);
    for QueueLength { saga, limit, waiting } in queues {
        metrics::queue_length(&saga, gauge(waiting));
        metrics::queue_limit(&saga, gauge(limit));
        limited.insert(saga);
    }
    for saga in former.difference(limited) {
        metrics::queue_length(saga, 0.0);
        metrics::queue_limit(saga, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use ::metrics::with_local_recorder;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;

    #[test]
    fn queue_without_a_limit_any_more_keeps_no_last_value() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let mut limited = BTreeSet::new();
        let mut reported = |queues: Vec<QueueLength>| {
            with_local_recorder(&recorder, || report_queues(queues, &mut limited));
            let values = snapshotter.snapshot().into_vec().into_iter().map(|(key, .., value)| match value {
                DebugValue::Gauge(value) => (key.key().name().to_owned(), value.into_inner()),
                other => panic!("{other:?}"),
            });
            values.collect::<std::collections::BTreeMap<_, _>>().into_values().collect::<Vec<_>>()
        };
        assert_eq!(reported(vec![QueueLength { saga: "jobs".into(), limit: 2, waiting: 1 }]), [1.0, 2.0]);
        assert_eq!(reported(vec![]), [0.0, 0.0]);
    }
}
