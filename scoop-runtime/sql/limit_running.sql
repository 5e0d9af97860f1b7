-- All runs of these handlers that are in execution, for a process that does not know what the last claims have done; and the number of
-- the newest row about that. There is a row also without runs. It follows limit_lock.sql in its transaction.
-- The condition on the id always holds: it chooses the index of running runs.
-- Locks: nothing.
-- $1 saga, $2 handlers
SELECT newest.number, run.root, run.id, run.key
FROM (SELECT max(l.number) AS number FROM scoop.limit_log l WHERE l.saga = $1) newest
LEFT JOIN (
    SELECT r.root, r.id, r.limit_key::text AS key FROM scoop.run r
    WHERE r.state = 'running' AND r.handler = ANY ($2::text[]) AND r.id >= '00000000-0000-0000-0000-000000000000'
) run ON true
