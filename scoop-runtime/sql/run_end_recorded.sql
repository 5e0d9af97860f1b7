-- Ends a pending run that another participant has executed: the handler has an end for the message. The row goes, or waits with
-- the recorded failures until its parent has read them. Returns the parent, and the time of the end.
-- Locks: the row of run.
-- $1 root, $2 id
WITH pending AS MATERIALIZED (
    SELECT r.root, r.id, r.parent, r.lineage, r.message_id, r.topic, r.handler, r.context FROM scoop.run r
    WHERE r.root = $1 AND r.id = $2 AND r.state::text = 'ready' AND r.epoch = r.unclaimed_epoch AND NOT r.rollback_requested
    FOR UPDATE
),
-- each event looked up by its message
recorded AS MATERIALIZED (
    SELECT p.*, e.*
    FROM pending p
    CROSS JOIN LATERAL (
        SELECT max(e.created_at) FILTER (WHERE e.type <> 'ROLLING_BACK') AS at,
               bool_or(e.type IN ('ROLLED_BACK', 'ROLLBACK_FAILED')) AS has_failed,
               min(e.created_at) FILTER (WHERE e.type = 'ROLLING_BACK') AS turned_at,
               (array_agg(e.exception) FILTER (WHERE e.type = 'ROLLING_BACK'))[1] AS failure,
               (array_agg(e.exception) FILTER (WHERE e.type = 'ROLLBACK_FAILED'))[1] AS rollback_failure
        FROM scoop.message_event e
        WHERE e.message_id = p.message_id AND e.coroutine_name = p.handler
          AND e.type IN ('COMMITTED', 'ROLLING_BACK', 'ROLLED_BACK', 'ROLLBACK_FAILED')
        OFFSET 0
    ) e
    WHERE e.at IS NOT NULL AND (e.failure IS NOT NULL OR NOT e.has_failed)
),
gone AS (
    DELETE FROM scoop.run r USING recorded e
    WHERE r.root = e.root AND r.id = e.id AND (e.parent IS NULL OR NOT e.has_failed)
),
inserted_end AS (
    INSERT INTO scoop.ended_run
        (root, id, parent, lineage, message_id, topic, handler, outcome, failure, rollback_failure, context, ended_at)
    SELECT e.root, e.id, e.parent, e.lineage, e.message_id, e.topic, e.handler,
           CASE WHEN NOT e.has_failed THEN 'committed' WHEN e.rollback_failure IS NULL THEN 'rolled_back'
                ELSE 'rollback_failed' END::scoop.run_outcome,
           e.failure, e.rollback_failure, e.context, e.at
    FROM recorded e
),
failed AS (
    UPDATE scoop.run r
    SET state = 'ended', rolling_back = true, rollback_started_at = e.turned_at, failure = e.failure,
        rollback_failure = e.rollback_failure, last_event_at = e.at
    FROM recorded e
    WHERE r.root = e.root AND r.id = e.id AND e.parent IS NOT NULL AND e.has_failed
)
SELECT e.root, e.parent AS id, e.at FROM recorded e
