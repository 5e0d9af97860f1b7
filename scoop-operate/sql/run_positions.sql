-- After which step of which definition are the unfinished runs of these handlers, and how many are there? Counts so many of each
-- handler and row state at most. A run that rolls back, or has completed no step of its execution, is after none.
-- Locks: nothing.
-- $1 the handlers, $2 so many
WITH unfinished AS MATERIALIZED (
    SELECT h.handler, r.topic, r.step, (r.suspended).jump, (r.suspended).definition, r.rolling_back, (r.awaited).signal,
           count(*) OVER (PARTITION BY h.handler, s.state) >= $2 AS is_capped
    FROM unnest($1::text[]) AS h (handler)
    CROSS JOIN unnest('{ready,running,waiting,stuck,failed}'::scoop.run_state[]) AS s (state)
    CROSS JOIN LATERAL (
        SELECT u.topic, u.step, u.suspended, u.rolling_back, u.awaited FROM scoop.run u
        WHERE u.state = s.state AND u.handler = h.handler
          AND u.state <> 'ended' AND u.id >= '00000000-0000-0000-0000-000000000000'
        ORDER BY u.id
        LIMIT $2
    ) r
)
SELECT p.handler, p.topic::text, CASE WHEN d.id IS NOT NULL THEN p.step::text END AS step,
       CASE WHEN d.id IS NOT NULL THEN p.jump END AS jump, coalesce(d.steps, '[]') AS steps, p.signal, p.count, p.is_capped
FROM (
    SELECT u.handler, u.topic, u.step, u.jump, u.definition, u.rolling_back, u.signal,
           count(*) AS count, bool_or(u.is_capped) AS is_capped
    FROM unfinished u
    GROUP BY u.handler, u.topic, u.step, u.jump, u.definition, u.rolling_back, u.signal
) p
LEFT JOIN scoop.definition d ON d.id = p.definition AND NOT p.rolling_back
ORDER BY p.handler, p.topic, p.definition, p.step, p.jump, p.signal
