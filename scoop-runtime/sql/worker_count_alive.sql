-- Counts the living workers.
-- Locks: the advisory locks of the dead, until the end of the transaction: none of them comes back.
SELECT count(*) FROM scoop.worker w WHERE NOT scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role)
