-- Deletes a worker that shuts down.
-- Locks: its row of worker.
-- $1 worker
DELETE FROM scoop.worker WHERE id = $1
RETURNING id, topics, handlers, definitions, service
