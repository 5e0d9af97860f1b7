//! Deletes finished hierarchies and old signals when their time is over: see `docs/retention.md`.
//!
//! One process at a time does it, batch by batch. It sleeps between the transactions, so that it takes a small part of
//! the server: see [`pace`]. When a worker dies meanwhile, another one goes on after its last transaction.

mod pace;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::shared::Engine;
use uuid::Uuid;

use crate::error::is_refused;
use crate::model::pruning::{PruneResult, Pruned, RefusedDeletions};
use crate::store::{
    ArchiveError, DueBatch, DueSettlement, Expired, PruneBatch, PruneMode, PruneTimes, ROWS_MAX,
};
use crate::telemetry;

/// After this many failures of the archive in succession, the next attempt is at the next look.
const FAILURES_MAX: u32 = 3;

/// A hierarchy that cannot be archived or deleted is tried again after this many intervals.
const RETRY_FACTOR: u32 = 6;

/// Deletes what is due until the engine stops. A program that keeps everything for ever leaves that to others.
pub(super) async fn serve(engine: Arc<Engine>) {
    let retention = engine.settings.retention;
    // In memory nothing is deleted.
    let is_idle = engine.store.tables().is_err()
        || retention.is_forever()
            && engine.subscriptions.iter().all(|saga| saga.retention(retention).is_forever());
    let (mut batch, mut has_more) = (PruneBatch::default(), false);
    while !is_idle && (has_more || sleeps(&engine, retention.interval).await) {
        has_more = delete_due(&engine, &mut batch).await.unwrap_or_else(|error| {
            telemetry::operation_failed(engine.worker, "retention", &error);
            false
        });
    }
    engine.stopping.cancelled().await;
}

/// Deletes what is due now, if no other process does. Returns whether the turn ended before.
async fn delete_due(engine: &Engine, batch: &mut PruneBatch) -> sqlx::Result<bool> {
    let (mut pruned, mut refused) = (Pruned::default(), RefusedDeletions::default());
    let result = match delete_hierarchies(engine, batch, &mut pruned, &mut refused).await {
        Ok(has_more) => delete_rows(engine, &mut pruned).await.map(|()| has_more),
        Err(error) => Err(error),
    };
    if !pruned.is_empty() {
        telemetry::pruned(&pruned);
    }
    if refused.count > 0 {
        telemetry::undeletable(&refused);
    }
    result
}

async fn delete_hierarchies(
    engine: &Engine,
    batch: &mut PruneBatch,
    pruned: &mut Pruned,
    refused: &mut RefusedDeletions,
) -> sqlx::Result<bool> {
    let (worker, retention) = (engine.worker, engine.settings.retention);
    let end = Instant::now() + pace::round_length(retention.interval);
    let mut failures = 0;
    loop {
        let Some(mut due) = engine.store.tables()?.claim_due(worker, retention, batch.size()).await? else {
            return Ok(false);
        };
        let size = due.roots.len();
        if size == 0 && !due.has_more {
            return Ok(false);
        }
        let (archived, retry_after) = match archive(engine, &due.roots).await? {
            Archived::Needless => (None, retention.interval),
            Archived::Complete(roots) => {
                failures = 0;
                (Some(roots), retention.interval)
            }
            Archived::Failed { count, first, error } => {
                failures += 1;
                batch.failed();
                due.has_more = failures < FAILURES_MAX;
                if count == 1 {
                    engine
                        .store
                        .tables()?
                        .put_off(first, &telemetry::scrubbed(&error), retry_after(engine))
                        .await?;
                    due.roots.retain(|root| *root != first);
                }
                (Some(vec![]), Duration::ZERO)
            }
            Archived::Stopped => return release(engine).await.map(|()| false),
        };
        let begun = Instant::now();
        let (has_more, behind) = (due.has_more, due.behind);
        let has_archived = archived.as_ref().is_none_or(|archived| !archived.is_empty());
        let settlement = DueSettlement { due, archived, retry_after };
        let settled = settle(engine, settlement, refused).await?;
        let elapsed = begun.elapsed();
        let has_more = match settled {
            Settled::Complete(results) => {
                results.into_iter().for_each(|result| pruned.add(result));
                if has_archived {
                    batch.record(elapsed, size);
                }
                has_more
            }
            Settled::Refused => {
                batch.failed();
                has_more || size > 1
            }
            Settled::Lost => return Ok(false),
        };
        if !has_more {
            return Ok(false);
        }
        if !sleeps(engine, pace::pause_after(elapsed, behind, retention.interval)).await {
            return release(engine).await.map(|()| false);
        }
        if Instant::now() > end {
            return Ok(has_more);
        }
    }
}

/// What became of a settlement.
enum Settled {
    Complete(Vec<PruneResult>),
    /// The database refuses it. A single hierarchy is put off; of several, each is to be tried alone.
    Refused,
    /// Another worker has taken the turn meanwhile.
    Lost,
}

/// Settles due hierarchies. Of several, one may be refused: then nothing is deleted, and the next batches begin with one.
async fn settle(
    engine: &Engine,
    mut settlement: DueSettlement,
    refused: &mut RefusedDeletions,
) -> sqlx::Result<Settled> {
    let (worker, retention) = (engine.worker, engine.settings.retention);
    let error = match engine.store.tables()?.delete_due(worker, retention, &settlement).await {
        Ok(results) if results.is_empty() && !settlement.due.roots.is_empty() => return Ok(Settled::Lost),
        Ok(results) => return Ok(Settled::Complete(results)),
        Err(error) if is_refused(&error) => error,
        Err(error) => return Err(error),
    };
    match settlement.due.roots[..] {
        [] => return Err(error),
        [root] => {
            let text = telemetry::refusal(&error);
            let topic = engine.store.tables()?.put_off(root, &text, retry_after(engine)).await?;
            refused.add(root, Some(topic), text);
            settlement.due.roots.clear();
            engine.store.tables()?.delete_due(worker, retention, &settlement).await?;
        }
        _ => {}
    }
    Ok(Settled::Refused)
}

/// When to look again at a hierarchy that could not be archived or deleted, after its first failure.
fn retry_after(engine: &Engine) -> Duration {
    engine.settings.retention.interval.saturating_mul(RETRY_FACTOR)
}

/// Leaves the rest to other processes, which would wait for minutes if this one still had it.
async fn release(engine: &Engine) -> sqlx::Result<()> {
    let nothing = DueBatch { roots: vec![], has_more: false, behind: Duration::ZERO };
    let settlement = DueSettlement { due: nothing, archived: None, retry_after: Duration::ZERO };
    engine.store.tables()?.delete_due(engine.worker, engine.settings.retention, &settlement).await?;
    Ok(())
}

/// What became of hierarchies that the archive of the program gets.
enum Archived {
    /// It has none.
    Needless,
    /// These are archived; the others are not to be deleted.
    Complete(Vec<Uuid>),
    /// This number is not archived, of which this is the first.
    Failed { count: usize, first: Uuid, error: ArchiveError },
    /// The engine stops.
    Stopped,
}

/// Archives those of these hierarchies that would be deleted. Each later change of one is younger than any time to keep.
async fn archive(engine: &Engine, roots: &[Uuid]) -> sqlx::Result<Archived> {
    let Some(archive) = &engine.settings.archive else { return Ok(Archived::Needless) };
    let due = engine.store.tables()?.deletable(roots, PruneTimes::ByTopic(engine.settings.retention)).await?;
    let Some(first) = due.first() else { return Ok(Archived::Complete(due)) };
    let archived = archive.take(engine.store.tables()?, engine.settings.retry_for, &due);
    match engine.stopping.run_until_cancelled(archived).await {
        None => Ok(Archived::Stopped),
        Some(Ok(())) => Ok(Archived::Complete(due)),
        Some(Err(error)) => {
            telemetry::unarchived(due.len(), *first, &*error);
            Ok(Archived::Failed { count: due.len(), first: *first, error })
        }
    }
}

/// Deletes the signals that reach no run any more, after the time of committed hierarchies, and the unique keys whose time is
/// over.
async fn delete_rows(engine: &Engine, pruned: &mut Pruned) -> sqlx::Result<()> {
    let age = engine.settings.retention.committed;
    let signals = (age < Duration::MAX).then_some(Expired::Signals(age));
    for rows in signals.into_iter().chain([Expired::UniqueKeys]) {
        loop {
            let begun = Instant::now();
            let count = rows.prune(engine.store.tables()?, PruneMode::Delete).await?;
            rows.count(pruned, count);
            if count < u64::from(ROWS_MAX) {
                break;
            }
            if !sleeps(engine, pace::pause_after(begun.elapsed(), Duration::ZERO, Duration::ZERO)).await {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Sleeps. Returns whether the engine goes on.
async fn sleeps(engine: &Engine, time: Duration) -> bool {
    tokio::select! {
        biased;
        () = engine.stopping.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}
