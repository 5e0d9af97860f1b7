-- How many runs of each handler have failed in their rollback, with no operator having settled that, and are not in the
-- working set? Since when does the one wait that waits longest? Goes through the index of ends from one handler with a failed
-- rollback to the next, and counts the newest of each. A row without a handler says that some were left out.
-- Locks: nothing.
-- $1 the maximum of a count, nothing for none, $2 of how many handlers, nothing for all
WITH listed AS MATERIALIZED (
    SELECT h.handler FROM scoop.failed_handler h LIMIT $2
)
SELECT h.handler::text, failed.count, failed.oldest
FROM listed h
CROSS JOIN LATERAL (
    SELECT count(*) AS count, min(e.created_at) AS oldest
    FROM (
        SELECT e.created_at FROM scoop.run_end e
        -- by its only value as a subquery: otherwise the planner may read all of another index of failed rollbacks
        WHERE e.type = (SELECT 'ROLLBACK_FAILED'::scoop.message_event_type) AND e.coroutine_name = h.handler
          -- counts, so that each is looked up by index
          AND (SELECT count(*) FROM scoop.message_event settled
               WHERE settled.type = 'ROLLED_BACK' AND settled.coroutine_name = e.coroutine_name
                 AND settled.message_id = e.message_id) = 0
          AND (SELECT count(*) FROM scoop.run r
               WHERE r.root = e.cooperation_lineage[1] AND r.id = scoop.run_id(e.cooperation_lineage)
                 AND r.state::text <> 'ended') = 0
        ORDER BY e.created_at DESC
        LIMIT $1
    ) e
) failed
WHERE failed.count > 0
UNION ALL
SELECT NULL, 0, NULL
WHERE (SELECT count(*) FROM listed) >= $2
ORDER BY 1
