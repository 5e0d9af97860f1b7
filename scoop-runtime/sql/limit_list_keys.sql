-- The keys under which runs of these queues are parked, in their order from one key on, and whether those of a key wait for its rate
-- alone: rate_due.sql finds these when they are due. What no program writes for the rate does not count: a run begins two periods
-- from now at the latest. Goes through the index from one key to the next, so that the runs of each cost nothing.
-- Locks: nothing.
-- $1 topics, $2 handlers and $3 the definitions that their runs are reserved for (triples), $4 the first key, $5 how many keys, $6 the
-- saga, $7 two periods of its rate in milliseconds
WITH RECURSIVE parked (topic, handler, lane, key, place) AS (
    SELECT own.topic, own.handler, own.lane, r.limit_key::text, 1
    FROM unnest($1::text[], $2::text[], $3::int[]) AS own (topic, handler, lane)
    CROSS JOIN LATERAL (
        SELECT r.limit_key FROM scoop.run r
        WHERE r.state::text = 'ready' AND r.parked_since IS NOT NULL AND r.handler = own.handler AND r.topic = own.topic
          AND r.reserved_for = own.lane AND r.limit_key >= $4
        ORDER BY r.limit_key LIMIT 1
    ) r
    UNION ALL
    SELECT p.topic, p.handler, p.lane, r.limit_key::text, p.place + 1
    FROM parked p
    CROSS JOIN LATERAL (
        SELECT r.limit_key FROM scoop.run r
        WHERE r.state::text = 'ready' AND r.parked_since IS NOT NULL AND r.handler = p.handler AND r.topic = p.topic
          AND r.reserved_for = p.lane AND r.limit_key > p.key
        ORDER BY r.limit_key LIMIT 1
    ) r
    WHERE p.place < $5
)
SELECT page.key, rate.waits IS NOT NULL AS waits_for_rate
FROM (SELECT DISTINCT p.key FROM parked p ORDER BY p.key LIMIT $5) page
LEFT JOIN LATERAL (
    SELECT true AS waits FROM scoop.rate_window w
    WHERE w.saga = $6 AND w.key = page.key AND w.has_parked
      AND w.opens_at <= least(w.idle_at, clock_timestamp() + $7 * interval '1 millisecond')
    OFFSET 0
) rate ON true
ORDER BY page.key
