//! Reports the gauges of the process and of the database at intervals: the feature `metrics`.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Engine;
use crate::store::{StepTransactions, StoreSizes};
use crate::telemetry::{self, metrics};

/// The interval of the gauges of the process.
const INTERVAL: Duration = Duration::from_secs(5);

/// The sizes in the database are read each such number of intervals.
const SIZES_EVERY: u32 = 6;

/// Reports the gauges until the engine stops.
pub(super) async fn serve(engine: Arc<Engine>) {
    for turn in 0_u32.. {
        report(&engine);
        if turn.is_multiple_of(SIZES_EVERY) {
            match engine.store.sizes().await {
                Ok(sizes) => report_sizes(sizes),
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
        awaiting_operator,
        undeletable,
        working_set_bytes,
        record_bytes,
    } = sizes;
    metrics::unfinished_runs(gauge(unfinished_runs));
    metrics::stuck_runs(gauge(stuck_runs));
    metrics::awaiting_operator_runs(gauge(awaiting_operator));
    metrics::undeletable_hierarchies(gauge(undeletable));
    metrics::working_set_bytes(gauge(working_set_bytes));
    metrics::record_bytes(gauge(record_bytes));
}
