-- Has failed runs go on after the decision of an operator: the repaired run is ready, those above it wait. No earlier claim can settle
-- one of them. The one above these that waits already gets another epoch, too: a wake-up that has not seen the decision is void.
-- Locks: these rows of run.
-- $1 root, $2 the runs: an array of objects, $3 when, $4 the run that waits already, or null
WITH waiting AS (
    UPDATE scoop.run r SET epoch = r.epoch + 1 WHERE r.root = $1 AND r.id = $4 AND r.state = 'waiting'
)
UPDATE scoop.run r
SET state = v.state::scoop.run_state, ready_at = clock_timestamp(), epoch = r.epoch + 1, rollback_requested = v.rollback_requested,
    step = NULL, suspended = NULL, replied = r.replied AND NOT v.rollback_requested,
    -- a missed deadline has had its effect
    give_up_at = (SELECT min(deadline) FROM unnest(v.deadlines) deadline WHERE deadline > $3),
    rollback_since = $3, last_event_at = greatest(r.last_event_at, $3), reserved_for = 0, refused_by = NULL
FROM jsonb_to_recordset($2) AS v (id uuid, state text, rollback_requested boolean, deadlines timestamptz[])
WHERE r.root = $1 AND r.id = v.id AND r.state = 'failed'
