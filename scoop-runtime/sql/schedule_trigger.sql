-- Counts a run that was triggered by a call. The schedule does not advance.
-- Locks: the row of schedule.
-- $1 the topic, $2 the handler, $3 the root
UPDATE scoop.schedule
SET run_count = run_count + 1, last_root = $3
WHERE topic = $1 AND handler = $2
RETURNING run_count, clock_timestamp() AS now
