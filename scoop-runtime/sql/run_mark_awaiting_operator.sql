-- Makes a run stuck whose rollback failed again: it awaits an operator, and so do the runs that wait for it. The failure is
-- recorded. The run has recorded its failed children. Returns the run if it was held under this epoch. A decision about a run locks
-- those above it before it reads the others (run_lock_above.sql): so it either sees this run as stuck, or this statement writes the
-- rows above after it.
-- Locks: its row of run, then those of the runs above that wait, the nearest first; those of its failed children; the new row of
-- repeated_failure.
-- $1 root, $2 id, $3 epoch, $4 the part that failed, $5 how often the children's failures had been
-- handled before, if they were why, $6 the failure, $7 reason, $8 the worker, $9 the reason of the runs above
WITH RECURSIVE updated_run AS (
    UPDATE scoop.run r
    SET state = 'stuck', owner = NULL, reason = $7, ready_at = clock_timestamp(),
        last_event_at = greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond'),
        awaits_operator = true, giving_up = false, give_up_at = NULL, attempts = 0, retries = 0
    WHERE r.root = $1 AND r.id = $2 AND r.epoch = $3 AND r.state = 'running'
    RETURNING r.root, r.id, r.parent, r.handler, r.message_id, r.last_event_at, scoop.send_failed(
        'rollback_failed', r.root, r.id, r.handler, r.message_id, r.last_event_at, $4, r.failure, $6)
),
inserted_failure AS (
    INSERT INTO scoop.repeated_failure
        (root, run, handler, message_id, worker, step, handler_iteration, exception, failed_at)
    SELECT updated_run.root, updated_run.id, updated_run.handler, updated_run.message_id, $8, $4, $5, $6,
           updated_run.last_event_at
    FROM updated_run
),
-- without duplicates, so that it ends at forged rows that lead in a circle
above (id, parent) AS (
    SELECT r.id, r.parent
    FROM updated_run
    JOIN scoop.run r ON r.root = $1 AND r.id = updated_run.parent
    WHERE r.state = 'waiting' AND r.rollback_failed_before
    UNION
    SELECT next.id, next.parent
    FROM above
    CROSS JOIN LATERAL (
        SELECT r.id, r.parent FROM scoop.run r
        WHERE r.root = $1 AND r.id = above.parent AND r.state = 'waiting' AND r.rollback_failed_before
        OFFSET 0
    ) next
),
locked_above AS MATERIALIZED (
    SELECT r.id
    FROM scoop.run r
    -- as an array, so that each is looked up by its key
    WHERE r.root = $1 AND r.id = ANY (ARRAY(SELECT above.id FROM above))
    ORDER BY cardinality(r.lineage) DESC
    FOR NO KEY UPDATE
),
-- also those that have it: a decision may have cleared it since this statement began
updated_above AS (
    UPDATE scoop.run r
    SET awaits_operator = true, reason = $9,
        ready_at = CASE WHEN r.awaits_operator THEN r.ready_at ELSE greatest(r.ready_at, clock_timestamp()) END
    WHERE r.root = $1 AND r.id = ANY (ARRAY(SELECT locked_above.id FROM locked_above))
      AND r.state = 'waiting' AND r.rollback_failed_before
),
deleted_children AS (
    DELETE FROM scoop.run child
    USING updated_run
    WHERE child.root = updated_run.root AND child.parent = updated_run.id AND child.state = 'ended'
)
SELECT updated_run.id FROM updated_run
