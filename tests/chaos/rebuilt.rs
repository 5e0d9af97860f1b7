//! Whether the working set equals what a rebuild from the record gives (I11).

use scoop::{Result, Scoop};
use sqlx::PgPool;
use sqlx::types::time::OffsetDateTime;

/// The working set without what a rebuild need not know. A run that nobody has begun has an id that nobody knows; one
/// whose owner was killed is ready; one that could not be undone reads where it stands from the record. Who missed a
/// deadline while it waited gives up, whether that was noticed or not, and what it launched is not begun any more; it
/// counts as missed by the time that is given.
const WORKING_SET: &str = "
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'handler', r.handler, 'topic', r.topic, 'message', r.message_id, 'parent', r.parent,
        'id', CASE WHEN r.epoch > 0 OR r.told THEN r.id END,
        'state', CASE WHEN r.state = 'running' OR r.state = 'waiting' AND NOT EXISTS (
            SELECT FROM scoop.run c WHERE c.root = r.root AND c.parent = r.id AND c.state <> 'ended'
                AND (c.epoch > c.first_epoch OR (r.gives_up OR r.give_up_at <= $1) IS NOT TRUE))
            THEN 'ready' ELSE r.state END,
        'told', r.told, 'failure', r.failure, 'rollback_failure', r.rollback_failure)
      || CASE WHEN r.state = 'ended' THEN '{}' ELSE jsonb_build_object(
        'backward', r.backward, 'context', r.context, 'give_up_at', r.give_up_at,
        'gives_up', (r.gives_up OR r.give_up_at <= $1) IS TRUE,
        'undoing', r.undoing_since IS NOT NULL, 'failed_before', r.failed_before,
        'held', r.held) END
      || CASE WHEN r.state = 'ended' OR r.failed_before THEN '{}' ELSE jsonb_build_object(
        'step', r.step, 'jump', r.jump, 'definition', r.definition, 'iteration', r.iteration, 'suspensions', r.suspensions,
        'completions', r.completions,
        'handler_iteration', r.handler_iteration, 'outputs', r.outputs) END)::text
    FROM scoop.run r
    WHERE r.handler <> 'none' AND NOT (r.epoch = r.first_epoch AND EXISTS (
        SELECT FROM scoop.run p WHERE p.root = r.root AND p.id = r.parent AND (p.gives_up OR p.give_up_at <= $1)))
    ORDER BY 1";

/// Rebuilds it, while nobody works, and says how many runs were in it and what is not as it was.
pub(crate) async fn rebuild(pool: &PgPool) -> Result<(usize, Vec<String>)> {
    // A deadline may pass between one look and the other.
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
