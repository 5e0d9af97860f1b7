-- Which processes are dead, and which runs had they taken? Strikes the processes out and frees
-- the runs; their epochs are raised by the next claim, so that a process that only seemed dead
-- cannot settle them any more.
-- Locks: the advisory locks of the dead until the end of the transaction, their rows of worker,
-- the freed rows of run.
-- $1 the asking worker
WITH dead AS (
    DELETE FROM scoop.worker w
    WHERE w.id <> $1 AND pg_try_advisory_xact_lock(w.lock_key)
    RETURNING w.id
),
freed AS (
    UPDATE scoop.run r
    SET state = 'ready', owner = NULL, ready_at = clock_timestamp()
    FROM dead
    WHERE r.owner = dead.id AND r.state = 'running'
    RETURNING r.id
)
SELECT (SELECT count(*) FROM dead) AS dead, (SELECT count(*) FROM freed) AS freed
