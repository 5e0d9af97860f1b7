SET LOCAL search_path = pg_catalog, pg_temp;

-- Queues with a limit.

-- How many runs of these handlers wait for a worker? The count ends at `at_most`. It goes through the index of ready runs from one
-- queue to the next, so that sleeping runs cost nothing, and through that of parked runs.
-- Locks: nothing.
CREATE FUNCTION scoop.waiting_runs(names text[], at_most bigint) RETURNS bigint LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE queue (handler, topic, lane) AS (
            SELECT first.handler, first.topic, first.reserved_for
            FROM unnest(names) AS own (name)
            CROSS JOIN LATERAL (
                SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
                WHERE r.state = 'ready' AND r.handler = own.name
                ORDER BY r.topic, r.reserved_for LIMIT 1
            ) first
            UNION ALL
            SELECT next.handler, next.topic, next.reserved_for
            FROM queue q
            CROSS JOIN LATERAL (
                SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
                WHERE r.state = 'ready' AND r.handler = q.handler AND (r.topic, r.reserved_for) > (q.topic, q.lane)
                ORDER BY r.topic, r.reserved_for LIMIT 1
            ) next
        )
        SELECT count(*)
        FROM (
            SELECT waiting.id
            FROM queue q
            CROSS JOIN LATERAL (
                (SELECT due.id
                 FROM (VALUES (1), (0), (-1)) AS level (priority)
                 CROSS JOIN LATERAL (
                     SELECT r.id FROM scoop.run r
                     WHERE r.state = 'ready' AND r.handler = q.handler AND r.topic = q.topic
                       AND r.reserved_for = q.lane AND scoop.priority_of(r.context) = level.priority
                       AND r.ready_at <= (SELECT clock_timestamp())
                     ORDER BY r.ready_at LIMIT at_most
                 ) due)
                UNION ALL
                -- the state as a text, and the order, choose the index of parked runs
                (SELECT r.id FROM scoop.run r
                 WHERE r.state::text = 'ready' AND r.parked_since IS NOT NULL AND r.handler = q.handler AND r.topic = q.topic
                   AND r.reserved_for = q.lane AND r.ready_at > (SELECT clock_timestamp())
                 ORDER BY r.limit_key LIMIT at_most)
            ) waiting
            LIMIT at_most
        ) waiting
    );
END $$;
