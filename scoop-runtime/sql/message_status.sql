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
    SELECT seen.coroutine_name AS handler, CASE WHEN failed.id IS NOT NULL THEN 'ROLLBACK_FAILED' ELSE coalesce(ended.type::text, upper(gone.outcome::text)) END AS type,
           failed.rollback_failure AS exception, turned.exception AS cause
    FROM scoop.message_event seen
    LEFT JOIN LATERAL (
        SELECT e.type FROM scoop.message_event e
        WHERE e.type IN ('COMMITTED', 'ROLLED_BACK') AND e.coroutine_name = seen.coroutine_name AND e.message_id = seen.message_id
        ORDER BY e.created_at DESC
        LIMIT 1
    ) ended ON true
    -- the event may be damaged
    LEFT JOIN LATERAL (
        SELECT r.outcome FROM scoop.ended_run r
        WHERE r.root = $1 AND r.id = scoop.run_id(seen.cooperation_lineage)
        OFFSET 0
    ) gone ON true
    LEFT JOIN LATERAL (
        SELECT e.exception FROM scoop.message_event e
        WHERE e.type = 'ROLLING_BACK' AND e.coroutine_name = seen.coroutine_name AND e.message_id = seen.message_id
        OFFSET 0
    ) turned ON true
    LEFT JOIN LATERAL (
        SELECT r.id, r.rollback_failure FROM scoop.run r
        WHERE r.root = $1 AND r.id = scoop.run_id(seen.cooperation_lineage)
        OFFSET 0
    ) failed ON true
    WHERE NOT standing.in_progress AND seen.type = 'SEEN' AND seen.message_id = $2
    ORDER BY seen.created_at
) outcome ON true
