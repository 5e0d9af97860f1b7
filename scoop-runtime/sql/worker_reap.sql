-- Which processes are dead? Strikes them out. Waits for claims of theirs that are still under way
-- in the server; what they own can be told only afterwards, so it is freed by another statement
-- of the same transaction.
-- Locks: the advisory locks of the dead until the end of the transaction, their rows of worker.
-- $1 the asking worker
DELETE FROM scoop.worker w
WHERE w.id <> $1 AND scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role)
RETURNING w.id, w.handlers, w.definitions
