-- Frees what these dead processes had taken. The epochs are raised by the next claim, and until
-- then the runs are not running: so a process that only seemed dead cannot settle them any more. What
-- they were in the middle of counts as an attempt in vain.
-- Locks: the freed rows of run.
-- $1 the dead; lists with an element for each saga of each: $2 whose, $3 which, $4 its definition
UPDATE scoop.run r
SET state = 'ready', owner = NULL, ready_at = clock_timestamp(), reason = 'the process that was at it is gone',
    (attempts, retries, tried_under) = (
        SELECT t.attempts + 1, t.retries, t.tried_under
        FROM scoop.tried(r.attempts, r.retries, r.tried_under, (
            SELECT own.definition FROM unnest($2::uuid[], $3::text[], $4::int[]) AS own (worker, handler, definition)
            WHERE own.worker = r.owner AND own.handler = r.handler
        ), NULL) t
    )
WHERE r.owner = ANY ($1) AND r.state = 'running'
