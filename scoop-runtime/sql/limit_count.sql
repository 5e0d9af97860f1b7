-- How many runs of these handlers are in execution? The count ends at $2. It follows limit_lock.sql in its transaction.
-- The condition on the id always holds: it chooses the index of running runs.
-- Locks: nothing.
-- $1 handlers, $2 the maximum of the count
SELECT count(*) AS running
FROM (
    SELECT FROM scoop.run r
    WHERE r.state = 'running' AND r.handler = ANY ($1::text[]) AND r.id >= '00000000-0000-0000-0000-000000000000'
    LIMIT $2
) r
