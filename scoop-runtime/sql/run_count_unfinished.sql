-- How many unfinished runs are there by handler and state, and since when is the one that is in it longest? Reads the
-- whole working set.
-- Locks: nothing.
SELECT u.handler::text, u.phase, count(*) AS count, min(u.since) AS oldest
FROM scoop.unfinished_run u
WHERE u.state <> 'ended'
GROUP BY u.handler, u.phase
ORDER BY u.handler, u.phase
