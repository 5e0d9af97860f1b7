//! Deletes finished hierarchies and old signals when their time is over: see `docs/retention.md`.
//!
//! One process at a time does it, batch by batch. It sleeps between the transactions, so that it takes a small part of
//! the server. When a worker dies meanwhile, the place and the kept hierarchies are those of its last transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::Engine;
use crate::api::{Pruned, SIGNALS_MAX};
use crate::store::{DueSettlement, PruneBatch, PruneMode, Rest};
use crate::telemetry;

/// After a transaction, this many times its duration passes before the next one.
const PAUSE_FACTOR: u32 = 9;

/// The factor for a process that is far behind.
const PAUSE_FACTOR_BEHIND: u32 = 1;

/// A process that is behind by more than this is far behind.
const BEHIND_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Deletes what is due until the engine stops. A program that keeps everything for ever leaves that to others.
pub(super) async fn serve(engine: Arc<Engine>) {
    let keep = engine.settings.keep;
    let is_idle = keep.is_forever() && engine.subscriptions.iter().all(|saga| saga.kept(keep).is_forever());
    while !is_idle && sleeps(&engine, keep.interval).await {
        if let Err(error) = delete_due(&engine).await {
            telemetry::operation_failed(engine.worker, "retention", &error);
        }
    }
    engine.stopping.cancelled().await;
}

/// Deletes all that is due now, if no other process does.
async fn delete_due(engine: &Engine) -> sqlx::Result<()> {
    let mut pruned = Pruned::default();
    let result = match delete_hierarchies(engine, &mut pruned).await {
        Ok(()) => delete_signals(engine, &mut pruned).await,
        Err(error) => Err(error),
    };
    if pruned.hierarchies + pruned.signals > 0 {
        telemetry::pruned(&pruned);
    }
    result
}

async fn delete_hierarchies(engine: &Engine, pruned: &mut Pruned) -> sqlx::Result<()> {
    let (worker, keep) = (engine.worker, engine.settings.keep);
    let mut batch = PruneBatch::default();
    loop {
        let begun = Instant::now();
        let Some(due) = engine.store.take_due(worker, keep, batch.size()).await? else {
            return Ok(());
        };
        let (size, rest, behind) = (due.roots.len(), due.rest, due.behind);
        if size == 0 && rest == Rest::Nothing {
            return Ok(());
        }
        let archived = due.roots.clone();
        let settlement = DueSettlement { due, archived, retry_after: keep.interval };
        let results = engine.store.settle_due(worker, keep, &settlement).await?;
        results.into_iter().for_each(|result| pruned.add(result));
        let took = begun.elapsed();
        batch.took(took, size);
        let factor = if behind > BEHIND_MAX { PAUSE_FACTOR_BEHIND } else { PAUSE_FACTOR };
        if rest == Rest::Nothing || !sleeps(engine, took * factor).await {
            return Ok(());
        }
    }
}

/// Deletes the signals that reach no run any more, after the time of committed hierarchies.
async fn delete_signals(engine: &Engine, pruned: &mut Pruned) -> sqlx::Result<()> {
    let age = engine.settings.keep.committed;
    if age == Duration::MAX {
        return Ok(());
    }
    loop {
        let begun = Instant::now();
        let signals = engine.store.prune_signals(age, SIGNALS_MAX, PruneMode::Delete).await?;
        pruned.signals += signals;
        if signals < u64::from(SIGNALS_MAX) || !sleeps(engine, begun.elapsed() * PAUSE_FACTOR).await {
            return Ok(());
        }
    }
}

/// Sleeps. Returns whether the engine goes on.
async fn sleeps(engine: &Engine, time: Duration) -> bool {
    tokio::select! {
        biased;
        () = engine.stopping.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}
