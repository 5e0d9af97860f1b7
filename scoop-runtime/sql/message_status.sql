-- Returns the state of a message. Each row has whether the message exists and whether it is in progress: a run of it is
-- unfinished, and goes on without an operator. If it is not, there is a row for each run with its outcome. One snapshot
-- suffices, since a run leaves the working set in the transaction that records its end.
-- Locks: nothing.
-- $1 the root, $2 the message
SELECT standing.emitted, standing.in_progress, outcome.*
FROM (
    -- not by the message itself, which may be kept for its unique key when its hierarchy is deleted
    SELECT EXISTS (SELECT FROM scoop.message_event e WHERE e.message_id = $2 AND e.type = 'EMITTED') AS emitted,
           EXISTS (
               SELECT FROM scoop.run r
               WHERE r.root = $1 AND r.message_id = $2
                 AND scoop.goes_on(r.state, r.rollback_failed_before, r.awaits_operator)
           ) AS in_progress
    OFFSET 0
) standing
LEFT JOIN LATERAL (
    SELECT seen.coroutine_name AS handler, ended.type::text AS type,
           CASE WHEN ended.type = 'ROLLBACK_FAILED' THEN (
               SELECT f.exception
               FROM scoop.shown_rollback_failure($1, scoop.run_id(seen.cooperation_lineage), NULL) f
           ) END AS exception,
           turned.exception AS cause
    FROM scoop.message_event seen
    LEFT JOIN LATERAL (
        SELECT e.type
        FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(seen.cooperation_lineage)
          AND e.message_id = seen.message_id
          -- as a text: otherwise the planner may read such events of all handlers
          AND e.type::text IN ('COMMITTED', 'ROLLED_BACK', 'ROLLBACK_FAILED')
        ORDER BY e.created_at DESC
        LIMIT 1
    ) ended ON true
    LEFT JOIN LATERAL (
        SELECT e.exception
        FROM scoop.message_event e
        WHERE e.type = 'ROLLING_BACK' AND e.coroutine_name = seen.coroutine_name
          AND e.message_id = seen.message_id
        OFFSET 0
    ) turned ON true
    WHERE NOT standing.in_progress AND seen.type = 'SEEN' AND seen.message_id = $2
    ORDER BY seen.created_at
) outcome ON true
