-- Lists sagas that have ready runs and no living worker: those of the first abandoned queues.
-- Locks: nothing.
-- $1 how many queues
SELECT DISTINCT q.topic::text, q.handler::text
FROM (SELECT q.topic, q.handler FROM scoop.abandoned_queue q LIMIT $1) q
ORDER BY 1, 2
