-- Hands a run over that the definition at hand cannot continue: to the newest definition of a living worker that has
-- not refused it, or to one certain definition only. If there is none, the run is stuck, with the reason and since when, or nothing changes. Each
-- settlement clears the reason; so without one the run has progressed since the refusals, and definitions that refused
-- it then may continue it now.
-- Locks: the row of that worker, as a claim does, so that it does not end unnoticed; then the row of run.
-- $1 root, $2 id, $3 epoch, $4 reason, $5 the definition that refuses it, $6 whether it may be stuck, $7 the only
-- definition that may have it, null for any
WITH refused AS MATERIALIZED (
    SELECT CASE WHEN r.reason IS NULL THEN ARRAY[$5::int]
        -- the element at a time, so that a forged list of several dimensions does no harm
        ELSE ARRAY(SELECT unnest(r.refused_by)) || $5::int END AS definitions
    FROM scoop.run r
    WHERE r.root = $1 AND r.id = $2
),
target AS MATERIALIZED (
    SELECT own.definition
    FROM scoop.run r
    CROSS JOIN refused
    JOIN scoop.worker w ON r.handler = ANY (w.handlers)
    CROSS JOIN LATERAL unnest(w.topics, w.handlers, w.definitions) AS own (topic, handler, definition)
    WHERE r.root = $1 AND r.id = $2 AND own.handler = r.handler AND own.topic = r.topic
      AND own.definition <> ALL (refused.definitions) AND ($7::int IS NULL OR own.definition = $7)
    ORDER BY w.started_at DESC, w.id DESC
    LIMIT 1
    FOR KEY SHARE OF w
)
UPDATE scoop.run r
SET state = CASE WHEN target.definition IS NULL THEN 'stuck' ELSE 'ready' END::scoop.run_state,
    owner = NULL, reason = $4, ready_at = clock_timestamp(),
    reserved_for = coalesce(target.definition, 0), refused_by = refused.definitions
FROM (SELECT (SELECT definition FROM target) AS definition) target, refused
WHERE r.root = $1 AND r.id = $2 AND r.epoch = $3 AND r.state = 'running'
  AND ($6 OR target.definition IS NOT NULL)
RETURNING r.state = 'stuck' AS stuck, CASE WHEN r.state = 'stuck' THEN scoop.send_failed(
    'stuck', r.root, r.id, r.handler, r.message_id, r.last_event_at, r.step, scoop.stuck_failure(r.handler, r.reason),
    NULL) END
