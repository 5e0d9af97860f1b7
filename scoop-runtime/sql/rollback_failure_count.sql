-- How many failed rollbacks of each handler has no operator settled, apart from those of runs in the working set? When did the
-- oldest of them fail? A run counts, too, if it is in the working set only for its parent. Goes through the index from one
-- handler to the next, and counts the oldest of each. A row without a handler says that some were left out.
-- Locks: nothing.
-- $1 the maximum of a count, nothing for none, $2 of how many handlers, nothing for all
WITH RECURSIVE failed_handler (handler) AS (
    (SELECT f.handler FROM scoop.rollback_failure f ORDER BY f.handler LIMIT 1)
    UNION ALL
    SELECT next.handler
    FROM failed_handler h
    CROSS JOIN LATERAL (
        SELECT f.handler FROM scoop.rollback_failure f WHERE f.handler > h.handler ORDER BY f.handler LIMIT 1
    ) next
),
listed AS MATERIALIZED (
    SELECT h.handler FROM failed_handler h LIMIT $2
)
SELECT l.handler::text, failed.count, failed.oldest
FROM listed l
CROSS JOIN LATERAL (
    SELECT count(*) AS count, min(f.failed_at) AS oldest
    FROM (
        SELECT f.failed_at FROM scoop.rollback_failure f
        WHERE f.handler = l.handler
          -- a count, so that each is looked up by index
          AND (SELECT count(*) FROM scoop.run r
               WHERE r.root = f.root AND r.id = f.run AND r.state::text <> 'ended') = 0
        ORDER BY f.failed_at
        LIMIT $1
    ) f
) failed
WHERE failed.count > 0
UNION ALL
SELECT NULL, 0, NULL
WHERE (SELECT count(*) FROM listed) >= $2
ORDER BY 1
