-- The keys under which runs of these handlers are parked. Goes through the index from one key to the next, so that the runs of each
-- cost nothing.
-- Locks: nothing.
-- $1 handlers
WITH RECURSIVE parked (handler, key) AS (
    SELECT own.handler, r.limit_key::text
    FROM unnest($1::text[]) AS own (handler)
    CROSS JOIN LATERAL (
        SELECT r.limit_key FROM scoop.run r
        WHERE r.state = 'ready' AND r.parked_since IS NOT NULL AND r.handler = own.handler
        ORDER BY r.limit_key LIMIT 1
    ) r
    UNION ALL
    SELECT p.handler, r.limit_key::text
    FROM parked p
    CROSS JOIN LATERAL (
        SELECT r.limit_key FROM scoop.run r
        WHERE r.state = 'ready' AND r.parked_since IS NOT NULL AND r.handler = p.handler AND r.limit_key > p.key
        ORDER BY r.limit_key LIMIT 1
    ) r
)
SELECT DISTINCT p.key FROM parked p
