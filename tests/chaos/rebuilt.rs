//! Compares the working set with its rebuild from the recorded events (I11).

use scoop::{Result, Scoop};
use sqlx::PgPool;
use sqlx::types::time::OffsetDateTime;

/// The working set, without differences that a rebuild may make. A pending run has an id that is recorded
/// nowhere. A run of a killed worker is ready. A run with a failed rollback takes its position from
/// the recorded events. A waiting run beyond its deadline gives up, whether or not that was noticed, and its
/// pending children are not begun any more. A deadline counts as missed by the given time.
const WORKING_SET: &str = "
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'handler', r.handler, 'topic', r.topic, 'message', r.message_id, 'parent', r.parent,
        'id', CASE WHEN r.epoch > 0 OR r.rollback_requested THEN r.id END,
        'state', CASE WHEN r.state = 'running' OR r.state = 'waiting' AND NOT EXISTS (
            SELECT FROM scoop.run c WHERE c.root = r.root AND c.parent = r.id AND c.state <> 'ended'
                AND (c.epoch > c.unclaimed_epoch OR (r.giving_up OR r.give_up_at <= $1) IS NOT TRUE))
            THEN 'ready' ELSE r.state END,
        'rollback_requested', r.rollback_requested, 'failure', r.failure, 'rollback_failure', r.rollback_failure)
      || CASE WHEN r.state = 'ended' THEN '{}' ELSE jsonb_build_object(
        'rolling_back', r.rolling_back, 'context', r.context, 'give_up_at', r.give_up_at,
        'giving_up', (r.giving_up OR r.give_up_at <= $1) IS TRUE,
        'undoing', r.rollback_since IS NOT NULL, 'rollback_failed_before', r.rollback_failed_before,
        'awaits_operator', r.awaits_operator) END
      || CASE WHEN r.state = 'ended' OR r.rollback_failed_before THEN '{}' ELSE jsonb_build_object(
        'step', r.step, 'jump', r.jump, 'definition', r.definition, 'iteration', r.iteration, 'suspensions', r.suspensions,
        'completions', r.completions,
        'handler_iteration', r.handler_iteration, 'outputs', r.outputs, 'execution', r.execution,
        'signal', CASE WHEN (r.giving_up OR r.give_up_at <= $1) IS NOT TRUE THEN r.signal END,
        'signal_key', CASE WHEN (r.giving_up OR r.give_up_at <= $1) IS NOT TRUE THEN r.signal_key END) END)::text
    FROM scoop.run r
    WHERE r.handler <> 'none' AND NOT (r.epoch = r.unclaimed_epoch AND EXISTS (
        SELECT FROM scoop.run p WHERE p.root = r.root AND p.id = r.parent AND (p.giving_up OR p.give_up_at <= $1)))
    ORDER BY 1";

/// Rebuilds the working set while no worker runs. Returns the number of its runs, and all differences.
pub(crate) async fn rebuild(pool: &PgPool) -> Result<(usize, Vec<String>)> {
    // A deadline may pass between the two snapshots.
    let soon = "SELECT clock_timestamp() + interval '10 seconds'";
    let soon: OffsetDateTime = sqlx::query_scalar(soon).fetch_one(pool).await?;
    let before: Vec<String> = sqlx::query_scalar(WORKING_SET).bind(soon).fetch_all(pool).await?;
    let scoop = Scoop::client(pool.clone());
    scoop.rebuild_working_set().await?;
    scoop.shutdown().await?;
    let after: Vec<String> = sqlx::query_scalar(WORKING_SET).bind(soon).fetch_all(pool).await?;
    let gone =
        before.iter().filter(|run| !after.contains(run)).map(|run| format!("I11: it was there: {run}"));
    let new = after.iter().filter(|run| !before.contains(run)).map(|run| format!("I11: it came: {run}"));
    Ok((before.len(), gone.chain(new).collect()))
}
