-- How many unfinished runs are there by handler and state, and since when is the one that is in it longest? Counts so many
-- of each row state and handler at most; of ready ones, so many that are due, that become due, and that are parked or await
-- a signal without a limit: a million sleeping runs must not hide one that is due.
-- Locks: nothing.
-- $1 so many, nothing for all
WITH part AS (
    SELECT q.handler, p.phase, p.count, p.oldest,
           sum(p.count) OVER (PARTITION BY q.handler, q.topic, q.reserved_for, times.begin) >= $1 AS is_capped
    FROM scoop.ready_queue q
    CROSS JOIN (
        SELECT timestamptz '-infinity' AS begin, statement_timestamp() AS end
        UNION ALL SELECT statement_timestamp(), '9999-01-01 00:00+00'
        UNION ALL SELECT '9999-01-01 00:00+00', 'infinity'
    ) times
    CROSS JOIN (VALUES (1), (0), (-1)) AS level (priority)
    CROSS JOIN LATERAL (
        SELECT u.phase, count(*) AS count, min(u.since) AS oldest
        FROM (
            SELECT scoop.phase(u) AS phase, scoop.phase_since(u) AS since FROM scoop.run u
            WHERE u.state = 'ready' AND u.handler = q.handler AND u.topic = q.topic AND u.reserved_for = q.reserved_for
              AND scoop.priority_of(u.context) = level.priority AND u.ready_at > times.begin AND u.ready_at <= times.end
            ORDER BY u.ready_at
            LIMIT $1
        ) u
        GROUP BY 1
    ) p
    UNION ALL
    SELECT l.handler, p.phase, p.count, p.oldest,
           sum(p.count) OVER (PARTITION BY l.state, l.handler) >= $1
    FROM scoop.listed_handler l
    CROSS JOIN LATERAL (
        SELECT u.phase, count(*) AS count, min(u.since) AS oldest
        FROM (
            SELECT scoop.phase(u) AS phase, scoop.phase_since(u) AS since FROM scoop.run u
            WHERE u.state = l.state AND u.handler = l.handler
              AND u.state <> 'ended' AND u.id >= '00000000-0000-0000-0000-000000000000'
            ORDER BY u.id
            LIMIT $1
        ) u
        GROUP BY 1
    ) p
    WHERE l.state <> 'ready'
)
SELECT p.handler::text, p.phase, sum(p.count)::bigint AS count, min(p.oldest) AS oldest,
       coalesce(bool_or(p.is_capped), false) AS is_capped
FROM part p
GROUP BY p.handler, p.phase
ORDER BY p.handler, p.phase
