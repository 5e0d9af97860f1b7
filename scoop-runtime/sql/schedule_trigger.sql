-- Counts a run that was triggered by a call. The schedule does not advance.
-- Locks: the row of schedule.
-- $1 the handler, $2 the root
UPDATE scoop.schedule
SET run_count = run_count + 1, last_root = $2
WHERE handler = $1 AND topic = (SELECT min(named.topic) FROM scoop.schedule named WHERE named.handler = $1)
RETURNING topic, run_count, clock_timestamp() AS now
