-- Strikes out a process that stops in good order.
-- Locks: its row of worker.
-- $1 worker
DELETE FROM scoop.worker WHERE id = $1
RETURNING id, handlers, definitions
