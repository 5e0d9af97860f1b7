-- The queues with a limit, or those of some sagas: how many runs wait in each? The counts end at the limits.
-- Locks: nothing.
-- $1 sagas, null for all
SELECT l.saga::text, least(l.queue, 100000) AS most, scoop.waiting_runs(l.handlers, least(l.queue, 100000)) AS waiting
FROM (
    SELECT l.* FROM scoop.run_limit l WHERE $1::text[] IS NULL AND l.saga >= ''
    UNION ALL
    SELECT l.* FROM scoop.run_limit l WHERE l.saga = ANY ($1)
) l
WHERE l.queue > 0
ORDER BY l.saga
