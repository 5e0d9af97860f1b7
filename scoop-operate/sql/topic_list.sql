-- Lists the topics to which a handler is or was subscribed. Goes through the index from one to the next.
-- Locks: nothing.
WITH RECURSIVE topic (name) AS (
    (SELECT h.topic FROM scoop.handler h ORDER BY h.topic LIMIT 1)
    UNION ALL
    SELECT next.topic
    FROM topic t
    CROSS JOIN LATERAL (SELECT h.topic FROM scoop.handler h WHERE h.topic > t.name ORDER BY h.topic LIMIT 1) next
)
SELECT t.name::text FROM topic t
