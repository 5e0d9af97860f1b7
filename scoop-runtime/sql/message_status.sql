-- Returns the state of a message. Each row has whether the message exists and whether it is in progress: a run of it is
-- unfinished, and its rollback has not failed. If it is not, there is a row for each run with its outcome. One snapshot
-- suffices, since a run leaves the working set in the transaction that records its end.
-- Locks: nothing.
-- $1 the root, $2 the message
SELECT standing.emitted, standing.in_progress, outcome.*
FROM (
    -- not by the message itself, which may be kept for its unique key when its hierarchy is deleted
    SELECT EXISTS (SELECT FROM scoop.message_event e WHERE e.message_id = $2 AND e.type = 'EMITTED') AS emitted,
           EXISTS (
               SELECT FROM scoop.run r WHERE r.root = $1 AND r.message_id = $2 AND r.state <> 'failed'
           ) AS in_progress
    OFFSET 0
) standing
LEFT JOIN LATERAL (
    SELECT seen.coroutine_name AS handler, stands.type, stands.exception, stands.cause
    FROM scoop.message_event seen
    LEFT JOIN LATERAL (
        SELECT upper(r.outcome::text) AS type, NULL::jsonb AS exception, r.failure AS cause FROM scoop.ended_run r
        WHERE r.root = $1 AND r.id = scoop.run_id(seen.cooperation_lineage)
      UNION ALL
        SELECT 'ROLLBACK_FAILED', r.rollback_failure, r.failure FROM scoop.run r
        WHERE r.root = $1 AND r.id = scoop.run_id(seen.cooperation_lineage)
        LIMIT 1
    ) stands ON true
    WHERE NOT standing.in_progress AND seen.type = 'SEEN' AND seen.message_id = $2
      AND (stands.type IS NOT NULL OR scoop.is_in_run($1, scoop.run_id(seen.cooperation_lineage)))
    ORDER BY seen.created_at
) outcome ON true
