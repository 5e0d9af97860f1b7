-- Marks a ready run as stuck, with the reason.
-- Locks: the row of run.
-- $1 root, $2 id, $3 the reason
UPDATE scoop.run
SET state = 'stuck', reason = $3, awaits_operator = false, ready_at = clock_timestamp()
WHERE root = $1 AND id = $2 AND state = 'ready'
RETURNING id
