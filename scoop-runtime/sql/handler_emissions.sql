-- Which topics did handlers launch messages on lately? Reads the newest events, by the times in their ids.
-- Locks: nothing.
-- $1 the first id that is later than all times, $2 how many events are read at most
SELECT DISTINCT e.coroutine_name::text AS handler, m.topic::text
FROM (
    SELECT e.type, e.message_id, e.coroutine_name FROM scoop.message_event e
    WHERE e.id < $1
    ORDER BY e.id DESC
    LIMIT $2
) e
CROSS JOIN LATERAL (SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id OFFSET 0) m
WHERE e.type = 'EMITTED' AND e.coroutine_name IS NOT NULL
ORDER BY 1, 2
