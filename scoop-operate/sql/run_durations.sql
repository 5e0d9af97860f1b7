-- How long did runs take that have committed since a time, from their beginning to their end? The newest runs of each handler.
-- Goes through the index of ends from one handler to the next.
-- Locks: nothing.
-- $1 since when, $2 how many runs of a handler at most, $3 how many in all, $4 of how many handlers
WITH listed (handler) AS (
    SELECT h.handler
    FROM unnest('{committed}'::scoop.run_outcome[]) AS k (outcome)
    CROSS JOIN LATERAL (
{ended_handlers}
        LIMIT $4
    ) h
)
SELECT l.handler, extract(epoch FROM ended.ended_at - ended.began_at)::float8 AS seconds
FROM listed l
CROSS JOIN LATERAL (
    SELECT r.began_at, r.ended_at FROM scoop.ended_run r
    WHERE r.outcome = 'committed' AND r.handler = l.handler AND r.ended_at >= $1
    ORDER BY r.ended_at DESC
    LIMIT $2
) ended
WHERE isfinite(ended.began_at) AND isfinite(ended.ended_at)
LIMIT $3
