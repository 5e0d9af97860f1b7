-- Which of my many handlers have something ready? Goes through the index from one handler that has to
-- the next, so it costs nothing that the others are there.
-- Locks: nothing.
-- $1 topics and $2 handlers (pairs)
WITH RECURSIVE listed (handler, topic) AS (
    (SELECT r.handler, r.topic FROM scoop.run r
     WHERE r.state = 'ready'
     ORDER BY r.handler, r.topic LIMIT 1)
    UNION ALL
    SELECT next.handler, next.topic
    FROM listed l
    CROSS JOIN LATERAL (
        SELECT r.handler, r.topic FROM scoop.run r
        WHERE r.state = 'ready' AND (r.handler, r.topic) > (l.handler, l.topic)
        ORDER BY r.handler, r.topic LIMIT 1
    ) next
)
SELECT l.topic, l.handler
FROM listed l
-- a case, so that this is no join: then it is a look into a hash table
WHERE CASE WHEN (l.topic::text, l.handler::text) IN (
    SELECT topic, handler FROM unnest($1::text[], $2::text[]) AS mine (topic, handler)
) THEN EXISTS (
    SELECT FROM scoop.run r
    WHERE r.state = 'ready' AND r.handler = l.handler AND r.topic = l.topic
      AND r.ready_at <= (SELECT clock_timestamp())
) END
