-- Marks a ready run as stuck, with the reason, and reports that to the handlers of `Failed`. A parked one does not have its key.
-- Locks: the row of run.
-- $1 root, $2 id, $3 the reason
UPDATE scoop.run
SET state = 'stuck', reason = $3, ready_at = clock_timestamp(),
    limit_key = CASE WHEN parked_since IS NULL THEN limit_key END, parked_since = NULL
WHERE root = $1 AND id = $2 AND state::text = 'ready'
RETURNING id, scoop.send_failed(
    'stuck', root, id, handler, message_id, last_event_at, step, scoop.stuck_failure(handler, reason), NULL)
