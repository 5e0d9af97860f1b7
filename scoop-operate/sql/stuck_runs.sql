-- Which runs can no living program continue, longest first? Those that all living definitions of their saga have
-- refused, with the reason; those that are due and whose saga no living worker has, which are in another state; and those
-- whose outcome was unknown too often, or whose claim the database refuses. Not those whose rollback failed.
-- Locks: nothing.
-- $1 longer than since this (nothing: the first), $2 and if as long, with a greater id, $3 how many
SELECT * FROM (
    (SELECT r.root, r.lineage, r.message_id, r.handler, r.topic, r.step, r.rolling_back, left(r.reason, 10000) AS reason,
            r.giving_up, r.ready_at AS stuck_since, r.id, coalesce((r.tries).unknown_attempts, 0) AS unknown_attempts,
            scoop.can_give_up(r.giving_up, r.rollback_since) AS can_give_up, scoop.phase(r) AS phase
     FROM scoop.run r
     WHERE scoop.rare_kind(r.state, r.tries, r.context, r.limit_key, r.parked_since) = 'stuck'
       AND ($1::timestamptz IS NULL OR (r.ready_at, r.id) > ($1, $2))
     ORDER BY r.ready_at, r.id
     LIMIT $3)
    UNION ALL
    SELECT r.root, r.lineage, r.message_id, r.handler, r.topic, r.step, r.rolling_back, NULL, r.giving_up, r.ready_at,
           r.id, 0, scoop.can_give_up(r.giving_up, r.rollback_since), r.phase
    FROM scoop.abandoned_queue q
    -- levels besides the normal one only if any due run has a priority
    CROSS JOIN unnest(CASE WHEN EXISTS (
                              SELECT FROM scoop.run r
                              WHERE scoop.rare_kind(r.state, r.tries, r.context, r.limit_key, r.parked_since) IN ('prioritized', 'suspect')
                                AND r.ready_at <= (SELECT clock_timestamp()))
                           THEN '{1,0,-1}'::int[] ELSE '{0}' END) AS level (priority)
    CROSS JOIN LATERAL (
        SELECT r.*, scoop.phase(r) AS phase FROM scoop.run r
        WHERE r.state = 'ready' AND r.handler = q.handler AND r.topic = q.topic AND r.reserved_for = q.reserved_for
          AND scoop.priority_of(r.context) = level.priority AND r.ready_at <= (SELECT clock_timestamp())
          AND ($1::timestamptz IS NULL OR (r.ready_at, r.id) > ($1, $2))
        ORDER BY r.ready_at, r.id
        LIMIT $3
    ) r
) stuck
ORDER BY stuck_since, id
LIMIT $3
