-- Deletes dead workers. Waits for their claims that are in progress in the server. So only a later statement of the
-- same transaction sees all runs that they own, and frees them.
-- Locks: the advisory locks of the dead until the end of the transaction, their rows of worker.
-- $1 the asking worker
DELETE FROM scoop.worker w
WHERE w.id <> $1 AND scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role)
RETURNING w.id, w.topics, w.handlers, w.definitions
