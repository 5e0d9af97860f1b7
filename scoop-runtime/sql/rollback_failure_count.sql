-- How many runs of each handler have failed in their rollback, with no operator having settled that, and are not in the
-- working set? Since when does the one wait that waits longest? Goes through the index from one handler to the next, and
-- counts the oldest of each.
-- Locks: nothing.
-- $1 the maximum of a count, nothing for none
WITH RECURSIVE listed (handler) AS (
    (SELECT f.handler FROM scoop.rollback_failure f ORDER BY f.handler LIMIT 1)
    UNION ALL
    SELECT next.handler
    FROM listed l
    CROSS JOIN LATERAL (
        SELECT f.handler FROM scoop.rollback_failure f WHERE f.handler > l.handler ORDER BY f.handler LIMIT 1
    ) next
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
ORDER BY l.handler
