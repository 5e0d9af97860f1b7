-- Frees what these dead processes had taken. The epochs are raised by the next claim, and until
-- then the runs are not running: so a process that only seemed dead cannot settle them any more. What
-- they were in the middle of counts as an attempt in vain.
-- Locks: the freed rows of run.
-- $1 the dead
UPDATE scoop.run r
SET state = 'ready', owner = NULL, ready_at = clock_timestamp(),
    attempts = r.attempts + 1, reason = 'the process that was at it is gone'
WHERE r.owner = ANY ($1) AND r.state = 'running'
