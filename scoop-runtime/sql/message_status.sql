-- Returns the state of a message. Each row has whether the message exists and whether it is in progress: a run of it is
-- unfinished, and goes on without an operator. If it is not, there is a row for each run with its outcome. One snapshot
-- suffices, since a run leaves the working set in the transaction that records its end.
-- A run without a failed rollback continues. After a repair, a waiting run does not continue if any run it waits for awaits an
-- operator, also if other runs below it continue. So the runs of the hierarchy are read during repairs only.
-- Locks: nothing.
-- $1 the root, $2 the message
WITH RECURSIVE held (id) AS (
    -- the runs above those that await an operator, each once: forged rows may lead in a circle, or be many of one message
    SELECT r.parent FROM scoop.run r
    WHERE r.root = $1 AND r.state::text = 'stuck' AND r.awaits_operator AND r.rollback_failed_before AND r.parent IS NOT NULL
    UNION
    SELECT above.parent
    FROM held
    CROSS JOIN LATERAL (
        SELECT r.parent FROM scoop.run r
        WHERE r.root = $1 AND r.id = held.id AND r.state = 'waiting' AND r.rollback_failed_before AND r.parent IS NOT NULL
        OFFSET 0
    ) above
)
SELECT standing.emitted, standing.in_progress, outcome.*
FROM (
    -- not by the message itself, which may be kept for its unique key when its hierarchy is deleted
    SELECT EXISTS (SELECT FROM scoop.message_event e WHERE e.message_id = $2 AND e.type = 'EMITTED') AS emitted,
           EXISTS (
               SELECT FROM scoop.run r
               WHERE r.root = $1 AND r.message_id = $2
                 AND (NOT r.rollback_failed_before OR CASE r.state
                     WHEN 'ended' THEN false
                     WHEN 'stuck' THEN NOT r.awaits_operator
                     WHEN 'waiting' THEN r.id NOT IN (SELECT h.id FROM held h)
                     ELSE true
                 END)
           ) AS in_progress
    OFFSET 0
) standing
LEFT JOIN LATERAL (
    SELECT seen.coroutine_name AS handler, ended.type::text AS type,
           CASE WHEN ended.type = 'ROLLBACK_FAILED'
               THEN scoop.latest_rollback_failure(scoop.run_id(seen.cooperation_lineage), ended.exception)
           END AS exception,
           turned.exception AS cause
    FROM scoop.message_event seen
    LEFT JOIN LATERAL (
        SELECT e.type, e.exception
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
