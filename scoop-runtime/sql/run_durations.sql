-- How long did runs take that have committed since a time, from their beginning to their end? The newest runs of each handler.
-- Goes through the index of ends from one handler to the next.
-- Locks: nothing.
-- $1 since when, $2 how many runs of a handler at most, $3 how many in all, $4 of how many handlers
WITH RECURSIVE listed (handler) AS (
    (SELECT e.coroutine_name FROM scoop.run_end e
     WHERE e.type = 'COMMITTED' AND e.coroutine_name IS NOT NULL
     ORDER BY e.coroutine_name LIMIT 1)
    UNION ALL
    SELECT next.handler
    FROM listed l
    CROSS JOIN LATERAL (
        SELECT e.coroutine_name AS handler FROM scoop.run_end e
        WHERE e.type = 'COMMITTED' AND e.coroutine_name > l.handler
        ORDER BY e.coroutine_name LIMIT 1
    ) next
)
SELECT l.handler::text, extract(epoch FROM ended.created_at - seen.created_at)::float8 AS seconds
FROM (SELECT l.handler FROM listed l LIMIT $4) l
CROSS JOIN LATERAL (
    SELECT e.message_id, e.created_at FROM scoop.run_end e
    WHERE e.type = 'COMMITTED' AND e.coroutine_name = l.handler AND e.created_at >= $1
    ORDER BY e.created_at DESC
    LIMIT $2
) ended
CROSS JOIN LATERAL (
    SELECT seen.created_at FROM scoop.message_event seen
    WHERE seen.message_id = ended.message_id AND seen.coroutine_name = l.handler AND seen.type = 'SEEN'
    OFFSET 0
) seen
LIMIT $3
