-- Counts a run that was triggered by a call. The schedule does not advance.
-- Locks: the row of schedule.
-- $1 the topic, $2 the handler, $3 the root
UPDATE scoop.schedule
SET fired = fired + 1, last_root = $3
WHERE topic = $1 AND handler = $2
RETURNING fired, clock_timestamp() AS now
