-- Ends a pending run that another participant has executed: the handler has an end for the message. The row goes, waits with the
-- recorded failure until its parent has read it, or rests if its rollback failed. The run is the one that has begun, with the id that
-- the participant gave it. Returns the parent, and the time of the end.
-- Locks: the row of run.
-- $1 root, $2 id
WITH pending AS MATERIALIZED (
    SELECT r.root, r.id, r.parent, r.lineage, r.message_id, r.topic, r.handler, r.context FROM scoop.run r
    WHERE r.root = $1 AND r.id = $2 AND r.state::text = 'ready' AND r.epoch = r.unclaimed_epoch AND NOT r.rollback_requested
    FOR UPDATE
),
recorded AS MATERIALIZED (
    SELECT p.*, e.*, e.rollback_failure IS NOT NULL AND NOT e.is_undone AS rests
    FROM pending p
    CROSS JOIN LATERAL (
        SELECT max(e.created_at) FILTER (WHERE e.type <> 'ROLLING_BACK') AS at,
               bool_or(e.type IN ('ROLLED_BACK', 'ROLLBACK_FAILED')) AS has_failed,
               min(e.created_at) FILTER (WHERE e.type = 'ROLLING_BACK') AS turned_at,
               (array_agg(e.exception) FILTER (WHERE e.type = 'ROLLING_BACK'))[1] AS failure,
               (array_agg(e.exception ORDER BY e.created_at DESC) FILTER (WHERE last.is_failed))[1] AS rollback_failure,
               (array_agg(e.step ORDER BY e.created_at DESC) FILTER (WHERE last.is_failed))[1] AS failed_part,
               (array_agg(e.child_failure_handler_iteration ORDER BY e.created_at DESC) FILTER (WHERE last.is_failed))[1] AS handling,
               coalesce(bool_or(e.type = 'ROLLED_BACK'), false) AS is_undone,
               min(seen.cooperation_lineage) AS begun_lineage
        FROM scoop.message_event seen
        JOIN scoop.message_event e ON scoop.run_id(e.cooperation_lineage) = scoop.run_id(seen.cooperation_lineage)
        CROSS JOIN LATERAL (SELECT e.type = 'ROLLBACK_FAILED' AS is_failed) last
        WHERE seen.type = 'SEEN' AND seen.message_id = p.message_id AND seen.coroutine_name = p.handler
          AND e.message_id = p.message_id AND e.coroutine_name = p.handler
          AND e.type::text IN ('COMMITTED', 'ROLLING_BACK', 'ROLLED_BACK', 'ROLLBACK_FAILED')
        OFFSET 0
    ) e
    WHERE e.at IS NOT NULL AND (e.failure IS NOT NULL OR NOT e.has_failed)
),
gone AS (
    DELETE FROM scoop.run r USING recorded e
    WHERE r.root = e.root AND r.id = e.id AND NOT e.rests AND (e.parent IS NULL OR NOT e.has_failed)
),
inserted_end AS (
    INSERT INTO scoop.ended_run
        (root, id, parent, lineage, message_id, topic, handler, outcome, failure, rollback_failure, context, ended_at)
    SELECT e.root, scoop.run_id(e.begun_lineage), e.parent, e.begun_lineage, e.message_id, e.topic, e.handler,
           CASE WHEN e.has_failed THEN 'rolled_back' ELSE 'committed' END::scoop.run_outcome,
           e.failure, e.rollback_failure, e.context, e.at
    FROM recorded e
    WHERE NOT e.rests
    -- the pending row may be a copy of one that has ended here
    ON CONFLICT DO NOTHING
),
failed AS (
    UPDATE scoop.run r
    SET state = CASE WHEN e.rests THEN 'failed' ELSE 'ended' END::scoop.run_state, rolling_back = true,
        rollback_since = e.turned_at, failure = e.failure, rollback_failure = e.rollback_failure,
        id = scoop.run_id(e.begun_lineage), lineage = e.begun_lineage, step = e.failed_part, handler_iteration = e.handling,
        give_up_at = NULL, last_event_at = e.at, ready_at = e.at
    FROM recorded e
    WHERE r.root = e.root AND r.id = e.id AND e.has_failed AND (e.rests OR e.parent IS NOT NULL)
)
SELECT e.root, e.parent AS id, e.at FROM recorded e
