-- Lists failed rollbacks that no operator has settled since, newest first. Goes through the index of ends from one
-- handler with a failed rollback to the next.
-- Locks: nothing.
-- $1 older than this (nothing: the newest), $2 and if as old, with a smaller id than this, $3 how many
SELECT failed.cooperation_lineage AS lineage, failed.message_id, failed.coroutine_name AS handler, m.topic,
       coalesce(again.step, failed.step) AS step,
       scoop.shown_failure(coalesce(again.exception, failed.exception)) AS failure,
       failed.created_at AS failed_at,
       r.state::text AS state, coalesce(r.awaits_operator, false) AS awaits_operator,
       EXISTS (
           SELECT FROM scoop.message_event below
           WHERE below.type = 'ROLLBACK_FAILED' AND below.cooperation_lineage[1] = failed.cooperation_lineage[1]
             AND below.cooperation_lineage[cardinality(below.cooperation_lineage) - 1]
                   = scoop.run_id(failed.cooperation_lineage)
             AND below.created_at > coalesce((
                 SELECT max(e.created_at) FROM scoop.message_event e
                 WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(failed.cooperation_lineage)
                   AND e.type = 'SUSPENDED'), '-infinity')
             AND NOT EXISTS (
                 SELECT FROM scoop.message_event settled
                 WHERE settled.type = 'ROLLED_BACK' AND settled.coroutine_name = below.coroutine_name
                   AND settled.message_id = below.message_id)
       ) AS below
FROM (
    SELECT of_handler.* FROM scoop.failed_handler h
    CROSS JOIN LATERAL (
        SELECT e.* FROM scoop.run_end e
        -- by its only value as a subquery: otherwise the planner may read all of another index of failed rollbacks
        WHERE e.type = (SELECT 'ROLLBACK_FAILED'::scoop.message_event_type) AND e.coroutine_name = h.handler
          AND (e.created_at, scoop.run_id(e.cooperation_lineage))
                < (coalesce($1::timestamptz, 'infinity'),
                   coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
          AND NOT EXISTS (
              SELECT FROM scoop.message_event settled
              WHERE settled.type = 'ROLLED_BACK' AND settled.coroutine_name = e.coroutine_name
                AND settled.message_id = e.message_id
          )
        ORDER BY e.created_at DESC, scoop.run_id(e.cooperation_lineage) DESC
        LIMIT $3
    ) of_handler
    UNION ALL
    -- forged rows without a handler
    (SELECT e.* FROM scoop.run_end e
     WHERE e.type = (SELECT 'ROLLBACK_FAILED'::scoop.message_event_type) AND e.coroutine_name IS NULL
       AND (e.created_at, scoop.run_id(e.cooperation_lineage))
             < (coalesce($1::timestamptz, 'infinity'), coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
     ORDER BY e.created_at DESC, scoop.run_id(e.cooperation_lineage) DESC
     LIMIT $3)
) failed
JOIN scoop.message m ON m.id = failed.message_id
LEFT JOIN LATERAL (
    SELECT f.step, f.exception
    FROM scoop.repeated_failure f
    WHERE f.run = scoop.run_id(failed.cooperation_lineage)
    ORDER BY f.failed_at DESC
    LIMIT 1
) again ON true
LEFT JOIN scoop.run r
    ON r.root = failed.cooperation_lineage[1]
   AND r.id = scoop.run_id(failed.cooperation_lineage)
ORDER BY failed.created_at DESC, scoop.run_id(failed.cooperation_lineage) DESC
LIMIT $3
