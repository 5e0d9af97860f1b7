-- How many runs have ended since a time, by handler and kind of end? Goes through the index of ends from one kind and
-- handler to the next, and counts the entries since then.
-- Locks: nothing.
-- $1 since when, $2 the maximum of a count, nothing for none
WITH RECURSIVE listed (type, handler) AS (
    (SELECT e.type, e.coroutine_name FROM scoop.run_end e
     WHERE e.coroutine_name IS NOT NULL
     ORDER BY e.type, e.coroutine_name LIMIT 1)
    UNION ALL
    SELECT next.type, next.handler
    FROM listed l
    CROSS JOIN LATERAL (
        SELECT e.type, e.coroutine_name AS handler FROM scoop.run_end e
        WHERE e.coroutine_name IS NOT NULL
          AND (e.type, e.coroutine_name) > (l.type, l.handler)
        ORDER BY e.type, e.coroutine_name LIMIT 1
    ) next
)
SELECT l.handler::text, l.type::text, ended.count
FROM listed l
CROSS JOIN LATERAL (
    SELECT count(*) AS count FROM (
        SELECT FROM scoop.run_end e
        WHERE e.type = l.type AND e.coroutine_name = l.handler AND e.created_at >= $1
        LIMIT $2
    ) e
) ended
WHERE ended.count > 0
ORDER BY l.handler, l.type
