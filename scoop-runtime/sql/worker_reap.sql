-- Deletes dead workers. Waits for their claims that are in progress in the server. So only a later statement of the
-- same transaction sees all runs that they own, and frees them.
-- Locks: the advisory locks of those dead whose backends live, until the end of the transaction; the rows of worker of the dead.
-- $1 the asking worker
DELETE FROM scoop.worker w
WHERE w.id = ANY (ARRAY(
    SELECT d.id FROM scoop.worker d
    WHERE d.id <> $1 AND scoop.is_gone(d.lock_key, d.backend, d.backend_since, d.role)
    -- others follow in the next look
    LIMIT 1000
))
  -- once more, since the worker may have another session by now
  AND scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role)
RETURNING w.id, w.topics, w.handlers, w.definitions, w.service
