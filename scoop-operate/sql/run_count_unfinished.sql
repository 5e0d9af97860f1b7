-- How many unfinished runs are there by handler and state, and since when is the one that is in it longest? Counts so many
-- of each row state and handler at most; of ready ones, so many that are due, that become due, and that are parked or await
-- a signal without a limit: a million sleeping runs must not hide one that is due. Goes through the handlers of each row state
-- by their names, so that many that are ready do not hide one that is stuck. A row without a handler says that some were left out.
-- Locks: nothing.
-- $1 so many, nothing for all, $2 of how many handlers in each row state, nothing for all
WITH queue AS MATERIALIZED (
    SELECT q.handler, q.topic, q.reserved_for FROM scoop.ready_queue q LIMIT $2
),
listed AS MATERIALIZED (
    SELECT s.state, h.handler
    FROM unnest('{running,waiting,stuck,failed}'::scoop.run_state[]) AS s (state)
    CROSS JOIN LATERAL (
        WITH RECURSIVE named (handler) AS (
            (SELECT r.handler FROM scoop.run r
             WHERE r.state = s.state AND r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000'
             ORDER BY r.handler LIMIT 1)
            UNION ALL
            SELECT next.handler
            FROM named n
            CROSS JOIN LATERAL (
                SELECT r.handler FROM scoop.run r
                WHERE r.state = s.state AND r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000'
                  AND r.handler > n.handler
                ORDER BY r.handler LIMIT 1
            ) next
        )
        SELECT n.handler FROM named n LIMIT $2
    ) h
),
part AS (
    SELECT q.handler, p.phase, p.count, p.oldest,
           sum(p.count) OVER (PARTITION BY q.handler, q.topic, q.reserved_for, times.begin) >= $1 AS is_capped
    FROM queue q
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
    FROM listed l
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
)
SELECT p.handler::text, p.phase, sum(p.count)::bigint AS count, min(p.oldest) AS oldest,
       coalesce(bool_or(p.is_capped), false) AS is_capped
FROM part p
GROUP BY p.handler, p.phase
UNION ALL
SELECT NULL, NULL, 0, NULL, false
WHERE (SELECT count(*) FROM queue) >= $2
   OR EXISTS (SELECT FROM listed l GROUP BY l.state HAVING count(*) >= $2)
ORDER BY 1, 2
