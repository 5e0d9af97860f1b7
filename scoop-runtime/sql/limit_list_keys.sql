-- The keys under which runs of these queues are parked. Goes through the index from one key to the next, so that the runs of each
-- cost nothing.
-- Locks: nothing.
-- $1 topics, $2 handlers and $3 the definitions that their runs are reserved for (triples)
WITH RECURSIVE parked (topic, handler, lane, key) AS (
    SELECT own.topic, own.handler, own.lane, r.limit_key::text
    FROM unnest($1::text[], $2::text[], $3::int[]) AS own (topic, handler, lane)
    CROSS JOIN LATERAL (
        SELECT r.limit_key FROM scoop.run r
        WHERE r.state = 'ready' AND r.parked_since IS NOT NULL AND r.handler = own.handler AND r.topic = own.topic
          AND r.reserved_for = own.lane
        ORDER BY r.limit_key LIMIT 1
    ) r
    UNION ALL
    SELECT p.topic, p.handler, p.lane, r.limit_key::text
    FROM parked p
    CROSS JOIN LATERAL (
        SELECT r.limit_key FROM scoop.run r
        WHERE r.state = 'ready' AND r.parked_since IS NOT NULL AND r.handler = p.handler AND r.topic = p.topic
          AND r.reserved_for = p.lane AND r.limit_key > p.key
        ORDER BY r.limit_key LIMIT 1
    ) r
)
SELECT DISTINCT p.key FROM parked p
