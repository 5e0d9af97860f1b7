-- Does the message of a collector wait to be joined, and which others wait for the same set?
-- Locks: nothing.
-- $1 the run of the collector
SELECT j.saga, j.key, j.since, j.expires_at,
       ARRAY(SELECT DISTINCT o.topic::text FROM scoop.join_member o
             WHERE o.saga = j.saga AND o.key = j.key AND o.joined IS NULL AND o.refused IS NULL ORDER BY 1) AS present
FROM scoop.join_member j
-- the last condition is so written that the planner looks up the run, and does not read the index of waiting messages
WHERE j.run = $1 AND j.joined IS NULL AND coalesce(j.refused, '') = ''
