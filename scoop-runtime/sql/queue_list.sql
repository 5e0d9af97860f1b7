-- The queues with a limit: how many runs wait in each? The counts end at the limits.
-- Locks: nothing.
SELECT l.saga::text, least(l.queue, 100000) AS most, scoop.waiting_runs(l.handlers, least(l.queue, 100000)) AS waiting
FROM scoop.run_limit l
WHERE l.saga >= '' AND l.queue > 0
ORDER BY l.saga
