-- Lists the sagas that have ready runs and no living worker.
-- Locks: nothing.
SELECT DISTINCT q.topic::text, q.handler::text FROM scoop.abandoned_queue q ORDER BY 1, 2
